//! The user's own data, in typical form.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use image::{Rgb, RgbImage};

fn fedelity(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let output = Command::cargo_bin("fedelity")
        .unwrap()
        .current_dir(dir)
        .env_remove("FEDELITY_DATA")
        .args(args)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn done(dir: &Path, args: &[&str]) -> (String, String) {
    let (code, out, err) = fedelity(dir, args);
    assert_eq!(code, 0, "{args:?}: {err}");
    (out, err)
}

/// The error message: one line, without a panic.
fn refused(dir: &Path, args: &[&str]) -> String {
    let (code, _, err) = fedelity(dir, args);
    assert_eq!(code, 2, "{args:?}: {err}");
    assert!(err.starts_with("error: ") && !err.contains("panicked"), "{err}");
    err
}

fn csv(rows: usize) -> String {
    let mut text = "site,age,height,outcome\n".to_string();
    for i in 0..rows {
        let class = i % 3;
        let (age, height) = (class * 20 + i * 7 % 13, 150 + class * 10 + i * 5 % 17);
        text += &format!("s{},{age},{height},{}\n", i % 4, ["low", "mid", "high"][class]);
    }
    text
}

#[test]
fn a_table_of_numbers_trains_over_its_sites() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("patients.csv"), csv(240)).unwrap();
    let config = r#"
rounds = 8
[data]
name = "csv"
train = "patients.csv"
label = "outcome"
key = "site"
[partition]
kind = "natural"
[clients]
epochs = 5
batch = 8
[model]
name = "logistic"
"#;
    fs::write(dir.path().join("exp.toml"), config).unwrap();
    let (out, err) = done(dir.path(), &["run", "exp.toml", "--output", "a", "--json"]);
    assert!(err.contains("natural keys over 4 clients"), "{err}");
    let last: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert!(last["accuracy"].as_f64().unwrap() > 0.8, "{last}");
    // The folder alone reproduces the run.
    let (again, _) = done(dir.path(), &["run", "a/config.toml", "--output", "b", "--json"]);
    let without_time = |text: &str| -> Vec<serde_json::Value> {
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.map(|mut line| line.as_object_mut().unwrap().remove("seconds").map(|_| line).unwrap()).collect()
    };
    assert_eq!(without_time(&out), without_time(&again));
    let (out, _) = done(dir.path(), &["partition", "exp.toml", "--set", "partition.clients=2", "-o", "p.json"]);
    assert!(out.contains("natural keys over 2 clients"), "{out}");
    let file = fs::read_to_string(dir.path().join("p.json")).unwrap();
    assert!(file.contains("\"names\""), "{file}");
    done(dir.path(), &["run", "exp.toml", "--partition", "p.json", "--output", "c"]);
    let text = refused(dir.path(), &["check", "exp.toml", "--set", "partition.clients=5"]);
    assert!(text.contains("partition.clients = 5: expected 1 to 4, the number of keys"), "{text}");
    done(dir.path(), &["check", "exp.toml"]);
    let (out, _) = done(dir.path(), &["data", "show", "exp.toml"]);
    assert!(out.contains("sample   2 numbers") && out.contains("4 natural keys: s0, s1, s2"), "{out}");
    let text = refused(dir.path(), &["check", "exp.toml", "--set", "model.name=simple-cnn"]);
    assert!(text.contains("model.name = \"simple-cnn\""), "{text}");
    let text = refused(dir.path(), &["check", "exp.toml", "--set", "data.augmentation={flip=true}"]);
    assert!(text.contains("it is for images, but the data are 2 numbers"), "{text}");
}

#[test]
fn bad_rows_are_named_or_counted() {
    let dir = tempfile::tempdir().unwrap();
    let table = csv(60).replace("s1,27,165,mid", "s1,27,165,").replace("s2,41,180,high", "s2,x,180,high");
    fs::write(dir.path().join("t.csv"), table).unwrap();
    let args = ["data", "show", "csv", "--set", "data.train=t.csv", "--set", "data.label=outcome"];
    let text = refused(dir.path(), &args);
    assert!(text.contains("t.csv:3: no label: column 'outcome' is empty; --skip-bad"), "{text}");
    let (out, err) = done(dir.path(), &[&args[..], &["--skip-bad"]].concat());
    assert!(err.contains("2 skipped: ") && err.contains("t.csv:4: column 'age'"), "{err}");
    assert!(out.contains("high") && out.contains("low"), "{out}");
    let (out, err) = done(dir.path(), &[&["-q"], &args[..], &["--skip-bad", "--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(json["left-out"] == 2 && err.contains("2 skipped: "), "{out} {err}");
    let run = ["run", "-q", "--skip-bad", "--output", "r", "--set", "data.name=csv", "--set", "data.train=t.csv"];
    let keys = ["--set", "data.label=outcome", "--set", "model.name=logistic", "--set", "partition.kind=iid"];
    let small = ["--set", "partition.clients=2", "--set", "clients.per-round=1", "--set", "rounds=1"];
    done(dir.path(), &[&run[..], &keys, &small].concat());
    let record = fs::read_to_string(dir.path().join("r/rounds.jsonl")).unwrap();
    assert!(record.lines().next().unwrap().contains("\"left-out\":2"), "{record}");
    for (set, expected) in [
        ("data.train=none.csv", "cannot open none.csv"),
        (
            "data.label=nothing",
            "there is no column 'nothing' for data.label; the columns are site, age, height, outcome",
        ),
        ("data.features=[\"shoe\"]", "there is no column 'shoe' for data.features"),
        ("data.features=[]", "expected a list of column names"),
        ("data.test-fraction=1.5", "expected a number above 0 and below 1"),
        ("data.path=x", "data.path: not a key of data.name = \"csv\""),
    ] {
        let text = refused(dir.path(), &[&args[..], &["--set", set]].concat());
        assert!(text.contains(expected), "{text}");
    }
    let text = refused(dir.path(), &["data", "show", "csv"]);
    assert!(text.contains("data.name = \"csv\" needs data.train"), "{text}");
    fs::write(dir.path().join("l.csv"), b"label,text\na,caf\xe9\n").unwrap();
    let text = refused(dir.path(), &["data", "show", "csv", "--set", "data.train=l.csv"]);
    let not_utf8 =
        "l.csv:2: column 'text': invalid UTF-8 at byte 3 of the field: the file is not UTF-8; save it as UTF-8";
    assert!(text.contains(not_utf8) && !text.contains("--skip-bad"), "{text}");
    // Nor are its rows skipped.
    fs::write(dir.path().join("l.csv"), b"label,text\na,caf\xe9\na,x\nb,y\na,z\n").unwrap();
    let text = refused(dir.path(), &["data", "show", "csv", "--skip-bad", "--set", "data.train=l.csv"]);
    assert!(text.contains(not_utf8), "{text}");
    fs::write(dir.path().join("l.csv"), b"label,caf\xe9\na,x\n").unwrap();
    let text = refused(dir.path(), &["data", "show", "csv", "--skip-bad", "--set", "data.train=l.csv"]);
    assert!(
        text.contains("l.csv:1: invalid UTF-8 in the column names: the file is not UTF-8; save it as UTF-8"),
        "{text}"
    );
    // Texts are read, but an image model cannot take them.
    fs::write(dir.path().join("l.jsonl"), "{\"label\":\"a\",\"text\":\"x y\"}\n".repeat(20)).unwrap();
    done(dir.path(), &["data", "show", "jsonl", "--set", "data.train=l.jsonl"]);
}

fn images(dir: &Path, side: u32) {
    for (class, colour) in [("blue", [20, 30, 200]), ("red", [200, 30, 20])] {
        for site in ["x", "y"] {
            let folder = dir.join(site).join(class);
            fs::create_dir_all(&folder).unwrap();
            for i in 0..12u8 {
                let image = RgbImage::from_fn(side, side, |x, y| {
                    Rgb(colour.map(|c: u8| c.wrapping_add(i * 3).wrapping_add((x * y % 7) as u8)))
                });
                image.save(folder.join(format!("{i}.png"))).unwrap();
            }
        }
    }
}

#[test]
fn a_folder_of_images_trains_and_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    images(&dir.path().join("photos"), 40);
    let config = r#"
rounds = 3
[data]
name = "folder"
path = "photos"
layout = "key/class"
size = [16, 16]
augmentation = { crop = 2, padding = "reflect", flip = true, rotation = 10, cutout = 4 }
[partition]
kind = "natural"
[clients]
epochs = 4
batch = 4
[method]
name = "fedntd"
"#;
    fs::write(dir.path().join("exp.toml"), config).unwrap();
    let (out, _) = done(dir.path(), &["run", "exp.toml", "--output", "a", "--json"]);
    let last: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert!(last["accuracy"].as_f64().unwrap() > 0.7, "{last}");
    let one = done(dir.path(), &["run", "exp.toml", "--output", "b", "--json", "--threads", "1"]).0;
    let two = done(dir.path(), &["run", "exp.toml", "--output", "c", "--json", "--threads", "2"]).0;
    let accuracies = |text: &str| -> Vec<String> {
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.map(|line| format!("{} {}", line["loss"], line["train_loss"])).collect()
    };
    assert_eq!(accuracies(&one), accuracies(&two));
    assert_eq!(
        fs::read(dir.path().join("b/model.safetensors")).unwrap(),
        fs::read(dir.path().join("c/model.safetensors")).unwrap()
    );
    done(dir.path(), &["data", "show", "exp.toml", "--sheet", "s.png"]);
    let sheet = image::open(dir.path().join("s.png")).unwrap();
    assert!(sheet.width() > 10 * 16 && sheet.height() > 2 * 16);
    let text = refused(dir.path(), &["data", "show", "exp.toml", "--sheet", "s.png"]);
    assert!(text.contains("--sheet s.png: the file exists; --overwrite replaces it"), "{text}");

    fs::write(dir.path().join("photos/x/blue/bad.jpg"), b"\xff\xd8\xff\xe0 broken").unwrap();
    let text = refused(dir.path(), &["run", "exp.toml", "--output", "d"]);
    assert!(text.contains("bad.jpg: damaged JPEG: ") && text.contains("--skip-bad"), "{text}");
    assert!(!dir.path().join("d").exists());
    let (_, err) = done(dir.path(), &["run", "exp.toml", "--output", "d", "--skip-bad"]);
    assert!(err.contains("1 skipped: ") && err.contains("bad.jpg"), "{err}");
    fs::remove_file(dir.path().join("photos/x/blue/bad.jpg")).unwrap();
    let text = refused(dir.path(), &["data", "show", "exp.toml", "--set", "data.layout=class"]);
    assert!(text.contains("in it one per class, set data.layout = \"key/class\""), "{text}");
    let text = refused(dir.path(), &["run", "exp.toml", "--set", "data.size=[0, 3]"]);
    assert!(text.contains("data.size = [0, 3]: expected [height, width]"), "{text}");
    let text = refused(dir.path(), &["run", "exp.toml", "--set", "data.augmentation=moon"]);
    assert!(text.contains("the recipe is for cifar10, cifar100, tiny-imagenet, not for folder"), "{text}");
    let text = refused(dir.path(), &["run", "exp.toml", "--set", "data.normalisation={mean=[0.5], std=[0.5]}"]);
    assert!(text.contains("data.normalisation has 1 numbers, but the images have 3 channels"), "{text}");
    let text = refused(dir.path(), &["run", "exp.toml", "--set", "data.augmentation={crop=16}"]);
    assert!(text.contains("crop = 16: expected less than 16"), "{text}");
    let text = refused(dir.path(), &["run", "exp.toml", "--set", "data.augmentation={tilt=3}"]);
    assert!(text.contains("unknown key 'data.augmentation.tilt'"), "{text}");
}

#[test]
fn the_embedded_set_has_no_keys_and_can_be_augmented() {
    let dir = tempfile::tempdir().unwrap();
    let text = refused(dir.path(), &["run", "--set", "partition.kind=natural"]);
    assert!(text.contains("has no natural keys"), "{text}");
    done(dir.path(), &["data", "show", "fashion-mnist-mini", "--sheet", "s.svg"]);
    assert!(fs::read_to_string(dir.path().join("s.svg")).unwrap().contains("Ankle boot"));
    let args = ["run", "--set", "rounds=1", "--set", "clients.epochs=1", "--output", "a"];
    done(dir.path(), &[&args[..], &["--set", "data.augmentation=niid-bench"]].concat());
    let config = fs::read_to_string(dir.path().join("a/config.toml")).unwrap();
    assert!(config.contains("augmentation = \"niid-bench\""), "{config}");
}

#[test]
fn fetching_without_a_network_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let (code, _, err) = fedelity(dir.path(), &["data", "fetch", "sst5", "--mirror", "no-such-folder"]);
    assert_eq!(code, 2);
    for part in ["no-such-folder/trainDevTestTrees_PTB.zip", "https://nlp.stanford.edu/sentiment/", "data/sst5/trees"] {
        assert!(err.contains(part), "{err}");
    }
    let text = refused(dir.path(), &["data", "fetch", "femnist"]);
    assert!(text.contains("preprocess.sh"), "{text}");
    let text = refused(dir.path(), &["data", "fetch", "cifra10"]);
    assert!(text.contains("did you mean 'cifar10'"), "{text}");
    let text = refused(dir.path(), &["data", "fetch", "mnist", "--mirror", "ftp://x"]);
    assert!(text.contains("expected an address that starts with http"), "{text}");
    done(dir.path(), &["data", "fetch", "fashion-mnist-mini"]);
    // A pipe is not waited for.
    let pipe = dir.path().join("mirror/trainDevTestTrees_PTB.zip");
    fs::create_dir(pipe.parent().unwrap()).unwrap();
    if std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()) {
        let text = refused(dir.path(), &["data", "fetch", "sst5", "--mirror", "mirror"]);
        assert!(text.contains("it is not a file"), "{text}");
    }
}
