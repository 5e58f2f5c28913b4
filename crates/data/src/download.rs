//! Download addresses of data sets, and checksums to verify the files.
//!
//! Nothing here opens a connection; that is left to the fetch crate.

/// How the files of a data set are obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Download {
    /// Addresses, tried in this order: of a folder with the files, ending in a slash, or of the only file. The user can
    /// replace them.
    pub mirrors: &'static [&'static str],
    pub files: &'static [Remote],
    /// SHA-256 of the uncompressed content of files, by their names in the data set's folder.
    pub content: &'static [(&'static str, &'static str)],
    /// Manual instructions, if the files cannot simply be downloaded.
    pub by_hand: Option<&'static str>,
}

/// A file to download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    pub name: &'static str,
    /// Its length, if it is published.
    pub bytes: Option<u64>,
    /// The length of its content, uncompressed, if that is known and the file's own is not.
    pub inside: Option<u64>,
    pub checksum: Option<Checksum>,
    pub form: RemoteForm,
}

/// A published checksum of a file, as hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    Sha256(&'static str),
    /// MD5, if nothing better is published: it detects a damaged file, not a forged one.
    Md5(&'static str),
}

impl Checksum {
    /// The name of the algorithm.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Sha256(_) => "SHA-256",
            Self::Md5(_) => "MD5",
        }
    }

    pub fn hex(self) -> &'static str {
        match self {
            Self::Sha256(hex) | Self::Md5(hex) => hex,
        }
    }
}

/// How a downloaded file is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteForm {
    /// It is kept unchanged.
    File,
    /// A gzip-compressed tar archive. The named folder inside becomes the data set's folder; without a name, the whole
    /// archive does.
    TarGz(Option<&'static str>),
    /// A zip archive, likewise.
    Zip(Option<&'static str>),
}

impl Download {
    pub const NONE: Self = Self { mirrors: &[], files: &[], content: &[], by_hand: None };
}

impl Remote {
    /// The most bytes that the file can have, if anything is known about its length.
    pub fn most_bytes(&self) -> Option<u64> {
        // Compression adds 5 bytes to each block of 65,535 that it cannot shorten, and a header with the file's name.
        self.bytes.or(self.inside.map(|inside| inside + inside / 1_000 + 4_096))
    }
}

/// A compressed file of which only the content is known.
const fn compressed(name: &'static str, inside: u64) -> Remote {
    Remote { name, bytes: None, inside: Some(inside), checksum: None, form: RemoteForm::File }
}

/// A file whose length and checksum are published.
const fn known(name: &'static str, form: RemoteForm, bytes: u64, checksum: Checksum) -> Remote {
    Remote { name, bytes: Some(bytes), inside: None, checksum: Some(checksum), form }
}

// Some mirrors compress them again, so the content is checked.
const MNIST_FILES: &[Remote] = &[
    compressed("train-images-idx3-ubyte.gz", 47_040_016),
    compressed("train-labels-idx1-ubyte.gz", 60_008),
    compressed("t10k-images-idx3-ubyte.gz", 7_840_016),
    compressed("t10k-labels-idx1-ubyte.gz", 10_008),
];

// The mirrors used by torchvision and TensorFlow Datasets; the original site, yann.lecun.com, no longer has the files.
pub(crate) const MNIST: Download = Download {
    mirrors: &["https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"],
    files: MNIST_FILES,
    content: &[
        ("train-images-idx3-ubyte.gz", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
        ("train-labels-idx1-ubyte.gz", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
        ("t10k-images-idx3-ubyte.gz", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
        ("t10k-labels-idx1-ubyte.gz", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    ],
    by_hand: None,
};

// The authors' server, used by torchvision and TensorFlow Datasets, and their repository.
pub(crate) const FASHION_MNIST: Download = Download {
    mirrors: &[
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ],
    files: MNIST_FILES,
    content: &[
        ("train-images-idx3-ubyte.gz", "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
        ("train-labels-idx1-ubyte.gz", "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
        ("t10k-images-idx3-ubyte.gz", "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
        ("t10k-labels-idx1-ubyte.gz", "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
    ],
    by_hand: None,
};

// The address is torchvision's. Length and checksum are from TensorFlow Datasets, for an address at www.itl.nist.gov
// that now leads elsewhere; other public projects found the same checksum here.
pub(crate) const EMNIST: Download = Download {
    mirrors: &["https://biometrics.nist.gov/cs_links/EMNIST/"],
    files: &[known(
        "gzip.zip",
        RemoteForm::Zip(None),
        561_753_746,
        Checksum::Sha256("fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e"),
    )],
    ..Download::NONE
};

pub(crate) const FEMNIST: Download = Download {
    by_hand: Some(
        "LEAF makes the files from NIST's: get https://github.com/TalwalkarLab/leaf, run \
         './preprocess.sh -s niid --sf 1.0 -k 0 -t sample' in its folder data/femnist, and put data/train and data/test \
         into the folder of the data set",
    ),
    ..Download::NONE
};

/// The first redirects to the second.
const CIFAR_MIRRORS: &[&str] = &["https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"];

// Lengths and checksums of the archives are from TensorFlow Datasets; MLDatasets.jl and torchvision-ruby have the same
// checksums, the latter also those of the content.
pub(crate) const CIFAR10: Download = Download {
    mirrors: CIFAR_MIRRORS,
    files: &[known(
        "cifar-10-binary.tar.gz",
        RemoteForm::TarGz(Some("cifar-10-batches-bin")),
        170_052_171,
        Checksum::Sha256("c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
    )],
    content: &[
        ("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
        ("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
        ("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
        ("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
        ("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
        ("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    ],
    by_hand: None,
};

pub(crate) const CIFAR100: Download = Download {
    mirrors: CIFAR_MIRRORS,
    files: &[known(
        "cifar-100-binary.tar.gz",
        RemoteForm::TarGz(Some("cifar-100-binary")),
        168_513_733,
        Checksum::Sha256("58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),
    )],
    content: &[
        ("train.bin", "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
        ("test.bin", "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
    ],
    by_hand: None,
};

// DataShare serves files by number; the old address, still in most public code, may return a page. The MD5 is the
// server's own ETag and appears in many public loaders; no public SHA-256 is known.
pub(crate) const CINIC10: Download = Download {
    mirrors: &[
        "https://datashare.ed.ac.uk/server/api/core/bitstreams/e8e186cc-2688-48f1-aa5a-3fda1a43f8b6/content",
        "https://datashare.ed.ac.uk/bitstreams/e8e186cc-2688-48f1-aa5a-3fda1a43f8b6/download",
        "https://datashare.ed.ac.uk/bitstream/handle/10283/3192/",
    ],
    files: &[known(
        "CINIC-10.tar.gz",
        RemoteForm::TarGz(None),
        687_544_992,
        Checksum::Md5("6ee4d0c996905fe93221de577967a372"),
    )],
    ..Download::NONE
};

// Several public projects have this length and checksum; Avalanche has the MD5 of the same file.
pub(crate) const TINY_IMAGENET: Download = Download {
    mirrors: &["https://cs231n.stanford.edu/", "http://cs231n.stanford.edu/"],
    files: &[known(
        "tiny-imagenet-200.zip",
        RemoteForm::Zip(Some("tiny-imagenet-200")),
        248_100_043,
        Checksum::Sha256("6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821"),
    )],
    ..Download::NONE
};

// The address is torchtext's, which has the MD5 of both files; several public projects have these checksums.
pub(crate) const AGNEWS: Download = Download {
    mirrors: &["https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/"],
    files: &[
        known(
            "train.csv",
            RemoteForm::File,
            29_470_338,
            Checksum::Sha256("76a0a2d2f92b286371fe4d4044640910a04a803fdd2538e0f3f29a5c6f6b672e"),
        ),
        known(
            "test.csv",
            RemoteForm::File,
            1_857_427,
            Checksum::Sha256("521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699"),
        ),
    ],
    ..Download::NONE
};

// The checksum is from Flux.jl, when it included data sets; another public project has it with the length.
pub(crate) const SST5: Download = Download {
    mirrors: &["https://nlp.stanford.edu/sentiment/"],
    files: &[known(
        "trainDevTestTrees_PTB.zip",
        RemoteForm::Zip(Some("trees")),
        789_539,
        Checksum::Sha256("5c613a4f673fc74097d523a2c83f38e0cc462984d847b82c7aaf36b01cbbbfcc"),
    )],
    ..Download::NONE
};
