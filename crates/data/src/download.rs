//! Where the files of data sets are, and how it is known that they are the right ones.
//!
//! Nothing here opens a connection: see the crate that fetches.

/// How the files of a data set are got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Download {
    /// The address of the folder that holds the files, with a slash at its end. Another one can take its place.
    pub base: &'static str,
    /// The files there.
    pub files: &'static [Remote],
    /// SHA-256 of the content of files of the data set, uncompressed, by their names in its folder.
    pub content: &'static [(&'static str, &'static str)],
    /// What to do by hand, where the files cannot simply be downloaded.
    pub by_hand: Option<&'static str>,
}

/// A file to download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its name.
    pub name: &'static str,
    /// Its length, if that is known.
    pub bytes: Option<u64>,
    /// Its SHA-256, if that is known.
    pub sha256: Option<&'static str>,
    /// What is done with it.
    pub form: Form,
}

/// What is done with a downloaded file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// It is kept as it is.
    File,
    /// It is a tar archive, compressed by gzip. The folder inside that becomes the folder of the data set; all of it
    /// without a name.
    TarGz(Option<&'static str>),
    /// It is a zip archive, as above.
    Zip(Option<&'static str>),
}

impl Download {
    /// Nothing to get.
    pub const NONE: Self = Self { base: "", files: &[], content: &[], by_hand: None };
}

const fn remote(name: &'static str, form: Form) -> Remote {
    Remote { name, bytes: None, sha256: None, form }
}

const MNIST_FILES: &[Remote] = &[
    remote("train-images-idx3-ubyte.gz", Form::File),
    remote("train-labels-idx1-ubyte.gz", Form::File),
    remote("t10k-images-idx3-ubyte.gz", Form::File),
    remote("t10k-labels-idx1-ubyte.gz", Form::File),
];

pub(crate) const MNIST: Download = Download {
    base: "https://ossci-datasets.s3.amazonaws.com/mnist/",
    files: MNIST_FILES,
    content: &[
        ("train-images-idx3-ubyte.gz", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
        ("train-labels-idx1-ubyte.gz", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
        ("t10k-images-idx3-ubyte.gz", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
        ("t10k-labels-idx1-ubyte.gz", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    ],
    by_hand: None,
};

pub(crate) const FASHION_MNIST: Download = Download {
    base: "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    files: MNIST_FILES,
    content: &[
        ("train-images-idx3-ubyte.gz", "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
        ("train-labels-idx1-ubyte.gz", "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
        ("t10k-images-idx3-ubyte.gz", "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
        ("t10k-labels-idx1-ubyte.gz", "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
    ],
    by_hand: None,
};

pub(crate) const EMNIST: Download = Download {
    base: "https://biometrics.nist.gov/cs_links/EMNIST/",
    files: &[remote("gzip.zip", Form::Zip(None))],
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

pub(crate) const CIFAR10: Download = Download {
    base: "https://www.cs.toronto.edu/~kriz/",
    files: &[remote("cifar-10-binary.tar.gz", Form::TarGz(Some("cifar-10-batches-bin")))],
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
    base: "https://www.cs.toronto.edu/~kriz/",
    files: &[remote("cifar-100-binary.tar.gz", Form::TarGz(Some("cifar-100-binary")))],
    content: &[
        ("train.bin", "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
        ("test.bin", "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
    ],
    by_hand: None,
};

pub(crate) const CINIC10: Download = Download {
    base: "https://datashare.ed.ac.uk/bitstream/handle/10283/3192/",
    files: &[remote("CINIC-10.tar.gz", Form::TarGz(None))],
    ..Download::NONE
};

pub(crate) const TINY_IMAGENET: Download = Download {
    base: "http://cs231n.stanford.edu/",
    files: &[remote("tiny-imagenet-200.zip", Form::Zip(Some("tiny-imagenet-200")))],
    ..Download::NONE
};

pub(crate) const AGNEWS: Download = Download {
    base: "https://raw.githubusercontent.com/mhjabreel/CharCnn_Keras/master/data/ag_news_csv/",
    files: &[
        remote("train.csv", Form::File),
        Remote {
            bytes: Some(1_857_427),
            sha256: Some("521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699"),
            ..remote("test.csv", Form::File)
        },
    ],
    ..Download::NONE
};

pub(crate) const SST5: Download = Download {
    base: "https://nlp.stanford.edu/sentiment/",
    files: &[remote("trainDevTestTrees_PTB.zip", Form::Zip(Some("trees")))],
    ..Download::NONE
};
