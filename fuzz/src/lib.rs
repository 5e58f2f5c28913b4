//! Every reader that takes bytes from outside, under one roof: a list of names, each with a function of bytes.
//!
//! A reader gets its bytes the way users give them to it: as a file among others that are in order. Nothing that is
//! private to a crate is used. [`READERS`] serves a short run with random changes, which is part of the tests
//! (`main.rs`), and libFuzzer (`coverage.rs`).

mod agreements;
mod archives;
mod checkpoints;
mod configs;
mod data;
mod messages;
mod models;
mod mutation;
mod place;
mod records;

pub use checkpoints::StoppedRun;
pub use mutation::Mutator;
pub use records::RECORDS;

/// Reads bytes: the reason if they are refused. A panic is a finding.
pub type Read = Box<dyn FnMut(&[u8]) -> Result<(), String>>;

/// Something that reads bytes from outside.
#[derive(Clone, Copy)]
pub struct Reader {
    /// The name of its folder of seeds.
    pub name: &'static str,
    /// Prepares a place for its files.
    pub open: fn() -> Read,
}

const fn reader(name: &'static str, open: fn() -> Read) -> Reader {
    Reader { name, open }
}

pub const READERS: &[Reader] = &[
    reader("idx-images", || data::set("mnist", "train-images-idx3-ubyte")),
    reader("idx-labels", || data::set("mnist", "train-labels-idx1-ubyte")),
    reader("cifar-10", || data::set("cifar10", "data_batch_1.bin")),
    reader("cifar-100", || data::set("cifar100", "train.bin")),
    reader("leaf", || data::set("femnist", "train/a.json")),
    reader("agnews", || data::set("agnews", "train.csv")),
    reader("sst5", || data::set("sst5", "train.txt")),
    reader("csv", data::csv),
    reader("jsonl", data::jsonl),
    reader("image", data::image),
    reader("image-cache", data::image_cache),
    reader("partition", data::partition_file),
    reader("tar", archives::tar),
    reader("tar-gz", archives::tar_gz),
    reader("zip", archives::zip),
    reader("model", models::model),
    reader("weights", models::weights),
    reader("layers", models::layers),
    reader("encoder-config", models::encoder_config),
    reader("encoder-weights", models::encoder_weights),
    reader("tokenizer", models::tokenizer),
    reader("config", configs::config),
    reader("sweep", configs::sweep),
    reader("preset", configs::preset),
    reader("rounds", || records::record("rounds.jsonl")),
    reader("summary", || records::record("summary.json")),
    reader("holdings", || records::record("holdings.json")),
    reader("clients", || records::record("clients.json")),
    reader("features", || records::record("features.safetensors")),
    reader("tags", || records::record("tags.json")),
    reader("state", || checkpoints::checkpoint("round-2.state")),
    reader("finished", || checkpoints::checkpoint("round-3.clients")),
    reader("memory", || checkpoints::checkpoint("client-0-2.memory")),
    reader("messages", messages::messages),
    reader("agreement", agreements::agreement),
];
