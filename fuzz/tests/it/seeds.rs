//! Seeds from the programs' own writers: `FEDELITY_SEEDS=renew cargo test -p fedelity-fuzz` writes them again. Findings stay
//! as they are.

use std::fs;
use std::io::{Cursor, Write};
use std::path::Path;
use std::sync::Arc;

use fedelity_experiment::{Document, Resources, Server, Study};
use fedelity_fl::wire::Wire;
use fedelity_fl::{Broadcast, ClientMemory, Finished, Payload, ServerState, TermMeans, Terms, Upload};
use fedelity_fuzz::{RECORDS, StoppedRun};
use fedelity_nn::{
    Card, Input, InputShape, Model, ModelFile, ModelSpec, Params, Pretrained, Reading, checkpoint, cpu, encoder, zoo,
};
use fedelity_record::{names, salvage_rounds};
use flate2::Compression;
use flate2::write::GzEncoder;
use image::{DynamicImage, ImageFormat, Rgb, RgbImage};

use crate::seeds_of;

/// Whether seeds are to be written rather than used.
pub(crate) fn are_renewed() -> bool {
    std::env::var("FEDELITY_SEEDS").is_ok_and(|wish| wish == "renew")
}

#[test]
fn renew() {
    if are_renewed() {
        data();
        archives();
        messages();
        agreement();
        models();
        a_run();
        a_checkpoint();
    }
}

fn put(name: &str, bytes: impl AsRef<[u8]>) {
    let path = seeds_of(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::best());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn data() {
    let number = |number: u32| number.to_be_bytes();
    let pixels: Vec<u8> = (0..2 * 784u32).map(|i| (i % 13) as u8).collect();
    let images = [&number(0x803)[..], &number(2), &number(28), &number(28), &pixels].concat();
    put("idx-images/valid", &images);
    put("idx-images/valid.gz", gz(&images));
    let labels = [&number(0x801)[..], &number(2), &[3, 9]].concat();
    put("idx-labels/valid", &labels);
    put("idx-labels/valid.gz", gz(&labels));
    let record = |labels: &[u8]| [labels, &[5; 3072]].concat();
    put("cifar-10/valid.bin", [record(&[1]), record(&[9])].concat());
    put("cifar-100/valid.bin", record(&[19, 99]));
    let image = format!("[{}0.25]", "0,".repeat(783));
    let writers =
        format!(r#""a": {{"x": [{image}, {image}], "y": [0, 61]}}, "b \u00e9": {{"y": [7], "x": [{image}]}}"#);
    let leaf = format!(r#"{{"users": ["a", "b é"], "num_samples": [2, 1], "user_data": {{{writers}}}}}"#);
    put("leaf/valid.json", leaf);
    put("agnews/valid.csv", "\"3\",\"A \"\"title\"\"\",\"Two\nlines\"\n1,b,c\n\"4\",\"é\",\"d\\e\"\n");
    put("sst5/valid.txt", "(3 (2 It) (4 (2 's) (3 (2 good) (2 -LRB-))))\n(0 (1 n\\/a) (2 \\*))\n");
    let rows = "age;ward;site;weight;label;id\n31;a;n;1,5;yes;1\n42;7;s;2,5;no;2\n53;a;n;3;yes;3\n64;b;s;-1e3;no;4\n";
    put("csv/valid-semicolons.csv", rows);
    put("csv/valid.csv", rows.replace(',', ".").replace(';', ","));
    put("csv/valid-quotes.csv", "\u{feff}label,text\r\na,\"x, \"\"y\"\"\nz\"\r\nb,\u{e9}\r\na,w\r\nb,\r\n");
    put(
        "jsonl/valid.jsonl",
        "{\"label\": \"a\", \"x\": 1.5, \"ward\": \"r\", \"site\": \"n\", \"on\": true}\n\
        {\"x\": -2e3, \"label\": \"b\", \"ward\": \"q\", \"site\": 1, \"on\": false}\n\n\
        {\"label\": \"a\", \"x\": 7, \"ward\": \"q\", \"site\": \"n\", \"on\": true}\n{\"label\": \"b\", \"x\": 0, \"ward\": \"r\", \"site\": \"n\", \"on\": true}\n",
    );
    put(
        "jsonl/valid-texts.jsonl",
        "{\"label\": 1, \"text\": \"\\u00e9 \\\"a\\\"\"}\n{\"label\": 2, \"text\": \"b\"}\n\
        {\"label\": 1, \"text\": \"\"}\n{\"label\": 2, \"text\": 3}\n",
    );
    let picture = DynamicImage::ImageRgb8(RgbImage::from_fn(7, 5, |x, y| Rgb([30 * x as u8, 40 * y as u8, 99])));
    for (name, image) in [
        ("image/valid-rgb.png", picture.clone()),
        ("image/valid-rgba16.png", DynamicImage::ImageRgba16(picture.to_rgba16())),
        ("image/valid-grey.png", DynamicImage::ImageLuma8(picture.to_luma8())),
    ] {
        let mut out = Cursor::new(Vec::new());
        image.write_to(&mut out, ImageFormat::Png).unwrap();
        put(name, out.into_inner());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    put("image/valid.jpg", fs::read(root.join("crates/data/src/folder/small.jpg")).unwrap());
    // The images of the folder are those of the reader.
    let folder = tempfile::tempdir().unwrap();
    cache(folder.path());
    let example = |name: &str| fs::read(root.join("examples").join(name)).unwrap();
    for name in ["quickstart.toml", "own-table.toml", "methods.toml", "agnews-minilm.toml"] {
        put(&format!("config/valid-{name}"), example(name));
    }
    put("layers/valid-example.toml", example("own-layers.toml"));
    put(
        "sweep/valid.toml",
        "config = \"base.toml\"\nseeds = [1, 2]\n[set]\nrounds = 3\n[grid]\n\
        \"method.name\" = [\"fedavg\", \"fedprox\"]\n\"clients.epochs\" = [1, 2]\n[[list]]\n\"optimizer.lr\" = 0.1\n",
    );
    put(
        "sweep/valid-tune.toml",
        "[grid]\n\"method.name\" = [\"fedavg\"]\n\"optimizer.lr\" = [0.1, 0.5]\n[tune]\nseeds = [7]\n",
    );
}

/// The cache of the images of the reader `image-cache`.
fn cache(folder: &Path) {
    use fedelity_data::folder::{Colour, Folder, FolderLayout};
    use fedelity_data::{DataSource, Skipped};
    let grey = fs::read(seeds_of("image/valid-grey.png")).unwrap();
    for name in ["a/1.png", "a/2.png", "b/1.png", "b/2.png"] {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &grey).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
    let (layout, colour, path) = (FolderLayout::Class, Colour::Grey, folder.to_path_buf());
    let source = DataSource::Folder(Folder { path, layout, size: None, colour, test_fraction: 0.5 });
    source.load(&mut Skipped::new(false)).unwrap();
    put("image-cache/valid.images", fs::read(folder.join(".fedelity-cache/folder.images")).unwrap());
}

fn archives() {
    let mut tar = tar::Builder::new(Vec::new());
    let long = format!("a/{}/", "long-".repeat(25));
    for (name, content, mut header) in [
        ("a/", &b""[..], tar::Header::new_gnu()),
        ("a/b.bin", b"some bytes", tar::Header::new_ustar()),
        (&format!("{long}c.txt"), b"more", tar::Header::new_gnu()),
    ] {
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        if name.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
        }
        tar.append_data(&mut header, name, content).unwrap();
    }
    tar.append_pax_extensions([("path", b"a/p\xc3\xa9.txt".as_slice()), ("comment", b"x")]).unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_size(3);
    header.set_mode(0o644);
    tar.append_data(&mut header, "a/p.txt", &b"pax"[..]).unwrap();
    let tar = tar.into_inner().unwrap();
    put("tar/valid.tar", &tar);
    put("tar-gz/valid.tar.gz", gz(&tar));
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    zip.add_directory("a", options).unwrap();
    for (name, method) in [("a/b.txt", zip::CompressionMethod::Deflated), ("c", zip::CompressionMethod::Stored)] {
        zip.start_file(name, options.compression_method(method)).unwrap();
        zip.write_all(&[7; 300]).unwrap();
    }
    put("zip/valid.zip", zip.finish().unwrap().into_inner());
}

fn payload() -> Payload {
    Payload::new().with("b", vec![1.5, -0.0, f32::MIN_POSITIVE / 2.0]).with("", vec![]).with("a\u{e9}", vec![f32::MAX])
}

fn upload() -> Upload {
    let mut terms = TermMeans::default();
    terms.add(&Terms::of("ce", 1.25).with("kd", 0.1), 3);
    Upload { round: 7, client: 3, examples: 12, steps: 5, terms, params: Params(vec![1.0, 2.0]), extra: payload() }
}

fn messages() {
    let global = Arc::new(Params(vec![0.25, -3.0]));
    put("messages/valid-arrays", payload().to_bytes());
    put("messages/valid-broadcast", Broadcast { round: 7, global: global.clone(), payload: payload() }.to_bytes());
    put("messages/valid-upload", upload().to_bytes());
    put("messages/valid-memory", ClientMemory { client: 9, memory: payload() }.to_bytes());
    put("messages/valid-state", ServerState { round: 4, global, state: payload() }.to_bytes());
    put("messages/valid-finished", Finished { upload: upload(), memory: payload(), teacher_passes: 7 }.to_bytes());
}

/// Other kinds of tokenizers, in the place of the model of `tokenizer/valid.json`.
const MODELS: [(&str, &str); 4] = [
    (
        "bpe",
        r#"{"type": "BPE", "dropout": null, "unk_token": "u", "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "vocab": {"u": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "b": 4, "ab": 5}, "merges": [["a", "b"]]}"#,
    ),
    (
        "unigram",
        r#"{"type": "Unigram", "unk_id": 0, "vocab": [["u", 0.0], ["[CLS]", 0.0], ["[SEP]", 0.0], ["a", -1.5], ["film", -2.5]], "byte_fallback": false}"#,
    ),
    ("words", r#"{"type": "WordLevel", "vocab": {"u": 0, "[CLS]": 1, "[SEP]": 2, "film": 3}, "unk_token": "u"}"#),
    (
        "bytes",
        r#"{"type": "BPE", "unk_token": null, "vocab": {"a": 0, "[CLS]": 1, "[SEP]": 2}, "merges": [], "ignore_merges": true}"#,
    ),
];
/// Other steps before and after it, each in the place of another.
const STEPS: [(&str, &str, &str); 5] = [
    ("replace", "\"BertNormalizer\", ", "\"Replace\", \"pattern\": {\"Regex\": \"[a-f]+?\"}, \"content\": \"a\", "),
    (
        "prepend",
        "\"BertNormalizer\", ",
        "\"Sequence\", \"normalizers\": [{\"type\": \"Prepend\", \"prepend\": \"_\"}, {\"type\": \"NFKC\"}], ",
    ),
    (
        "bytes",
        "{\"type\": \"BertPreTokenizer\"}",
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true}",
    ),
    (
        "split",
        "{\"type\": \"BertPreTokenizer\"}",
        "{\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\s+\"}, \"behavior\": \"Removed\", \"invert\": false}",
    ),
    (
        "space",
        "{\"type\": \"BertPreTokenizer\"}",
        "{\"type\": \"Metaspace\", \"replacement\": \"\u{2581}\", \"prepend_scheme\": \"always\", \"split\": true}",
    ),
];

/// Its version is that of the program, so the next one refuses it.
fn agreement() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("all.csv"), "label,a,b\nx,1,2\ny,3,5\nx,2,1\ny,5,5\n").unwrap();
    let text = "[data]\nname = \"csv\"\ntrain = \"all.csv\"\n[partition]\nkind = \"sites\"\nnames = [\"a\", \"b\"]\n[model]\nname = \
                \"mlp\"\n";
    let document = Document::parse("study.toml".to_string(), dir.path().to_path_buf(), text).unwrap();
    let study = Study::load_with(&document, &Resources::default()).unwrap();
    put("agreement/valid-table.json", Server::new(study, 1).unwrap().agreement().to_json());
}

fn card(model: &str, input: Input, numbers: usize, classes: &[&str]) -> Card {
    Card {
        model: model.to_owned(),
        projection: false,
        stem: None,
        encoder: None,
        layers: None,
        input,
        classes: classes.iter().map(|name| (*name).to_owned()).collect(),
        mean: vec![0.5; numbers],
        std: vec![0.25; numbers],
        reading: None,
        table: None,
        origin: [("method".to_owned(), "fedavg".to_owned())].into(),
    }
}

/// The bytes of a model with these weights and this description.
fn saved(card: &Card, described: bool) -> Vec<u8> {
    let model = Model::compile(&card.architecture().unwrap(), cpu()).unwrap();
    let params = Params((0..model.layout().len()).map(|i| i as f32 / 64.0).collect());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    checkpoint::save(&path, model.layout(), &params, described.then_some(card)).unwrap();
    fs::read(path).unwrap()
}

fn models() {
    let numbers = card("logistic", Input::Numbers { width: 4 }, 4, &["a", "b", "c"]);
    put("model/valid-numbers.safetensors", saved(&numbers, true));
    put("weights/valid.safetensors", saved(&numbers, false));
    let layers = "layers = [{ kind = \"conv\", out = 2, kernel = 3 }, { kind = \"relu\" }, { kind = \"residual\", body = [\
        { kind = \"conv\", out = 2, kernel = 3, pad = 1 }, { kind = \"batch-norm\" }] }, { kind = \"max-pool\", kernel = 2 },\
        { kind = \"flatten\" }, { kind = \"dense\", out = 3 }]\n";
    let own = Card {
        layers: Some(layers.to_owned()),
        ..card("own", Input::Image { channels: 1, height: 6, width: 6 }, 1, &["x", "y"])
    };
    put("model/valid-layers.safetensors", saved(&own, true));
    put("layers/valid.toml", format!("name = \"mine\"\nhead = \"out\"\n{layers}"));
    let words = ["<pad>", "<unk>", "<cls>", "film"].map(String::from).to_vec();
    let texts = "layers = [{ kind = \"embedding\", width = 3 }, { kind = \"lstm\", hidden = 2 }]\n";
    let reads = Card {
        layers: Some(texts.to_owned()),
        reading: Some(Reading::Words(words)),
        ..card("own", Input::Tokens { vocabulary: 4, max_length: 6 }, 0, &["x", "y"])
    };
    put("model/valid-texts.safetensors", saved(&reads, true));
    put("layers/valid-texts.toml", texts);
    for (name, input) in [
        ("resnet8-gn", InputShape::Image { channels: 3, height: 9, width: 7 }),
        ("simple-cnn", InputShape::Image { channels: 1, height: 28, width: 28 }),
    ] {
        let arch = zoo::build(&ModelSpec::new(name, false), input, 3).unwrap();
        put(&format!("layers/valid-{name}.toml"), ModelFile::of(&arch).text());
    }
    encoders();
    let whole = fs::read_to_string(seeds_of("tokenizer/valid.json")).unwrap();
    let start = whole.find("{\"type\": \"WordPiece\"").unwrap();
    for (name, model) in MODELS {
        put(&format!("tokenizer/made-{name}.json"), format!("{}{model}}}", &whole[..start]));
    }
    for (name, old, new) in STEPS {
        assert!(whole.contains(old));
        put(&format!("tokenizer/made-{name}-step.json"), whole.replace(old, new));
    }
}

fn encoders() {
    let config = r#"{"model_type": "bert", "hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2,
 "intermediate_size": 4, "max_position_embeddings": 5, "type_vocab_size": 2, "vocab_size": 7, "layer_norm_eps": 1e-12}"#;
    put("encoder-config/valid-bert.json", config);
    put(
        "encoder-config/made-distilbert.json",
        r#"{"model_type": "distilbert", "dim": 4, "n_layers": 1, "n_heads": 2, "hidden_dim": 4,
 "max_position_embeddings": 5, "vocab_size": 7, "activation": "gelu", "dropout": 0.2}"#,
    );
    // A folder needs weights to be opened: one tensor of enough numbers.
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), config).unwrap();
    let path = folder.path().join("model.safetensors");
    let head = br#"{"embeddings.word_embeddings.weight":{"dtype":"F32","shape":[1000],"data_offsets":[0,4000]}}"#;
    fs::write(&path, [&(head.len() as u64).to_le_bytes()[..], head, &[0; 4000]].concat()).unwrap();
    let found = Pretrained::open(folder.path()).unwrap();
    let input = InputShape::Tokens { vocabulary: found.vocabulary(), max_length: 5 };
    let model = Model::compile(&encoder("own", found.shape(), false, None, input, 2), cpu()).unwrap();
    let params = Params((0..model.layout().len()).map(|i| i as f32 / 64.0).collect());
    checkpoint::save(&path, model.layout(), &params, None).unwrap();
    put("encoder-weights/valid-bert.safetensors", fs::read(path).unwrap());
}

/// What a run of two sites and two rounds leaves behind.
fn a_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = "a,b,site,label\n".to_string();
    for i in 0..24 {
        rows += &format!("{},{},{},{}\n", i % 7, i % 5, ["n", "s"][i % 2], ["x", "y"][i % 3 / 2]);
    }
    fs::write(folder.path().join("rows.csv"), rows).unwrap();
    let text = "rounds = 2\n[data]\nname = \"csv\"\ntrain = \"rows.csv\"\nkey = \"site\"\n[partition]\nkind = \"natural\"\n\
                [clients]\nepochs = 1\nbatch = 4\n[model]\nname = \"logistic\"\n";
    let document = Document::parse("study".to_string(), folder.path().to_path_buf(), text).unwrap();
    let study = Study::load_with(&document, &Resources::default()).unwrap();
    let run = study.folder(Some(&folder.path().join("run"))).unwrap();
    study.run(&run, 1, &mut ()).unwrap();
    fs::write(run.file(names::TAGS), "[\"first\", \"a \\u00e9\"]\n").unwrap();
    // Nothing of this machine.
    let machine = salvage_rounds(&run.file(names::ROUNDS)).unwrap().header.machine;
    let place = folder.path().display().to_string();
    for (name, seed) in RECORDS.into_iter().chain([(names::PARTITION, "partition/valid.json")]) {
        let text = fs::read_to_string(run.file(name)).unwrap();
        put(seed, text.replace(&machine, "a machine").replace(&place, "/data"));
    }
    put("features/valid.safetensors", fs::read(run.file(names::FEATURES)).unwrap());
    put("model/valid-table.safetensors", fs::read(run.file(names::MODEL)).unwrap());
}

fn a_checkpoint() {
    let stopped = StoppedRun::new();
    let [_, (_, state), (_, memory)] = &stopped.files;
    put("state/valid.state", state);
    put("memory/valid.memory", memory);
    // A client that has finished the next round: it sends what it was sent, and remembers what it did.
    let frame = |bytes: &[u8]| -> Vec<u8> {
        let length = u64::from_le_bytes(bytes[38..46].try_into().unwrap()) as usize;
        bytes[50..50 + length].to_vec()
    };
    let server = ServerState::from_bytes(&frame(state)).unwrap();
    let memory = ClientMemory::from_bytes(&frame(memory)).unwrap().memory;
    let params = Params(server.global.0.clone());
    let extra = Payload::new().with("control-change", memory.get("control").unwrap().to_vec());
    let upload = Upload { round: 2, client: 0, params, extra, ..upload() };
    let done = Finished { upload, memory, teacher_passes: 0 }.to_bytes();
    let mut file = state[..38].to_vec();
    file.extend((done.len() as u64).to_le_bytes());
    file.extend([0; 4]);
    file.extend(done);
    put("finished/valid.clients", file);
}
