//! Published tables as presets: those of the program are sound, and wrong ones are refused with the place.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fedelity_experiment::{PRESETS, Preset, PresetChoice, Settings};
use fedelity_report::{PublishedValue, QuantityKind};

/// The numbers of the papers, row by row as they are printed, read from the papers' text by a program: table, row, and for
/// each cell its values with their standard deviations.
const PUBLISHED: &str = include_str!("published.txt");

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("presets")
}

#[test]
fn every_file_is_part_of_the_program() {
    let mut files = BTreeSet::new();
    for paper in fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()) {
        for file in fs::read_dir(&paper).unwrap().map(|entry| entry.unwrap().path()) {
            let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_string();
            files.insert(format!("{}/{}", name(&paper), name(&file)));
        }
    }
    let known: BTreeSet<String> = PRESETS.iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(files, known, "presets and preset/embedded.rs must agree");
    assert_eq!(known.len(), PRESETS.len());
}

/// The checks of `Preset` itself read the configuration of every row in every cell.
#[test]
fn every_preset_is_sound() {
    let mut runs = 0;
    for (name, _) in PRESETS {
        let preset = Preset::find(Path::new(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let table = &preset.table;
        assert_eq!(table.rows[table.baseline].name, "fedavg", "{name}");
        assert!(table.departures.len() >= 5, "{name}: every choice is told");
        assert_eq!(preset.seeds.len(), 3, "{name}");
        for row in table.rows.iter().filter(|row| row.is_published()) {
            assert!(row.values.iter().all(|values| values.iter().any(Option::is_some)), "{name}, {}", row.name);
        }
        let plan = preset.plan(&PresetChoice::default(), Path::new("out"), |_| Ok(())).unwrap();
        runs += plan.sweep.jobs.len();
        let folders: BTreeSet<&str> = plan.sweep.jobs.iter().map(|job| job.folder.as_str()).collect();
        assert_eq!(folders.len(), plan.sweep.jobs.len(), "{name}");
        for cell in &plan.cells {
            assert_eq!(cell.rounds as u64, table.cells[cell.cell].rounds, "{name}");
            for row in &cell.rows {
                let settings = Settings::read(plan.document(row).unwrap()).unwrap();
                assert_eq!(settings.methods.len(), 1, "{name}, {}, {}", cell.name, row.name);
                assert!(settings.notes.iter().all(|note| note.contains("projection")), "{name}: {:?}", settings.notes);
            }
        }
    }
    assert!(runs > 1_000, "{runs}");
}

/// Numbers are compared with a second transcription, made in another way.
#[test]
fn published_numbers_are_those_of_the_papers() {
    let mut seen = BTreeSet::new();
    let mut numbers = 0;
    for line in PUBLISHED.lines() {
        let mut words = line.split(' ');
        let (name, row) = (words.next().unwrap(), words.next().unwrap());
        let preset = Preset::find(Path::new(name)).unwrap();
        let table = &preset.table;
        let found = table.rows.iter().find(|one| one.name == row).unwrap_or_else(|| panic!("{name} has no {row}"));
        assert!(seen.insert((name.to_string(), row.to_string())), "{line}");
        let mut ours: Vec<Option<f64>> = Vec::new();
        for cell in 0..table.cells.len() {
            for quantity in 0..table.quantities.len() {
                match found.value(quantity, cell) {
                    Some(PublishedValue::Number { value, sd }) => {
                        assert!(table.quantities[quantity].kind.range().contains(&value));
                        ours.push(Some(value));
                        ours.extend(sd.map(Some));
                    }
                    Some(PublishedValue::Never) => ours.push(Some(f64::INFINITY)),
                    None => ours.push(None),
                }
            }
        }
        let theirs: Vec<Option<f64>> = words
            .map(|word| match word {
                "-" => None,
                "never" => Some(f64::INFINITY),
                number => Some(number.parse().unwrap()),
            })
            .collect();
        assert_eq!(ours, theirs, "{line}");
        numbers += ours.len();
    }
    for (name, _) in PRESETS {
        let preset = Preset::find(Path::new(name)).unwrap();
        for row in preset.table.rows.iter().filter(|row| row.is_published()) {
            assert!(seen.contains(&(name.to_string(), row.name.clone())), "{name}, {}", row.name);
        }
    }
    assert_eq!(numbers, 1_009);
}

const TINY: &str = "\
title = \"A table\"
source = \"nobody\"
seeds = [5, 7]

[config]
rounds = 2
partition.clients = 5
clients.per-round = 2
model.name = \"logistic\"

[[quantity]]
name = \"accuracy\"
kind = \"final\"

[[quantity]]
name = \"rounds\"
kind = \"to-target\"

[[cell]]
name = \"a\"
set.partition.alpha = 0.1

[[cell]]
name = \"b\"
target = 65
set.partition.alpha = 1.0
rows.fedprox.method.mu = 0.5

[[row]]
name = \"fedavg\"
published.accuracy = [50.5, 60]
sd.accuracy = [0.5, \"-\"]
published.rounds = [2, 1]

[[row]]
name = \"fedprox\"
set.method.mu = 0.1
published.accuracy = [51, \"-\"]
published.rounds = [\"never\", \"-\"]

[[row]]
name = \"more\"
set.method.name = \"fedntd\"
";

fn read(text: &str) -> Result<Preset, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    fs::write(&path, text).unwrap();
    Preset::read(&path).map_err(|error| error.to_string().replace(&format!("{}/", dir.path().display()), ""))
}

#[test]
fn a_preset_becomes_runs() {
    let preset = read(TINY).unwrap();
    assert_eq!((preset.table.name.as_str(), preset.table.cells[1].rounds), ("mine", 2));
    assert_eq!(preset.table.rows[1].title, "FedProx");
    assert_eq!(preset.table.rows[2].title, "more");
    assert_eq!(preset.table.quantities[0].kind, QuantityKind::Final);
    let jobs = |choice: PresetChoice| -> Vec<String> {
        let plan = preset.plan(&choice, Path::new("out"), |_| Ok(())).unwrap();
        plan.sweep.jobs.iter().map(|job| format!("{} {}", job.folder, job.set.join(" "))).collect()
    };
    let words = |all: &[&str]| all.iter().map(|one| one.to_string()).collect::<Vec<_>>();
    // FedProx has no number in the second cell, and "more" none at all. The first seed comes first.
    let expected = [
        "a/fedavg/seed-5 partition.alpha=0.1 method.name=\"fedavg\"",
        "a/fedprox/seed-5 partition.alpha=0.1 method.name=\"fedprox\" method.mu=0.1",
        "b/fedavg/seed-5 partition.alpha=1.0 method.name=\"fedavg\"",
        "a/fedavg/seed-7 partition.alpha=0.1 method.name=\"fedavg\"",
        "a/fedprox/seed-7 partition.alpha=0.1 method.name=\"fedprox\" method.mu=0.1",
        "b/fedavg/seed-7 partition.alpha=1.0 method.name=\"fedavg\"",
    ];
    assert_eq!(jobs(PresetChoice::default()), expected);
    // Rows of the table in its order, then others; a cell may change a row; options count.
    let choice = PresetChoice {
        cells: words(&["b"]),
        methods: words(&["scaffold", "more", "fedprox"]),
        seeds: Some(1),
        rounds: Some(7),
        set: words(&["clients.epochs=3"]),
    };
    let expected = [
        "b/fedprox/seed-5 partition.alpha=1.0 method.name=\"fedprox\" method.mu=0.5 rounds=7 clients.epochs=3",
        "b/more/seed-5 partition.alpha=1.0 method.name=\"fedntd\" rounds=7 clients.epochs=3",
        "b/scaffold/seed-5 partition.alpha=1.0 method.name=\"scaffold\" rounds=7 clients.epochs=3",
    ];
    assert_eq!(jobs(choice.clone()), expected);
    let plan = preset.plan(&choice, Path::new("out"), |_| Ok(())).unwrap();
    let settings = Settings::read(plan.document(&plan.cells[0].rows[0]).unwrap()).unwrap();
    assert_eq!((plan.cells[0].rounds, settings.config.rounds, settings.config.clients.epochs), (7, 7, 3));
    // More seeds than the preset has follow its largest.
    let plan = preset.plan(&PresetChoice { seeds: Some(4), ..PresetChoice::default() }, Path::new("out"), |_| Ok(()));
    assert_eq!(plan.unwrap().seeds, [5, 7, 8, 9]);
    for (choice, said) in [
        (
            PresetChoice { cells: words(&["c"]), ..PresetChoice::default() },
            "--cells c: there is no cell 'c'; there are a, b",
        ),
        (
            PresetChoice { methods: words(&["fedporx"]), ..PresetChoice::default() },
            "--methods fedporx: there is no row or method 'fedporx'; there are fedavg, fedprox, more, ",
        ),
        (PresetChoice { seeds: Some(0), ..PresetChoice::default() }, "--seeds 0: expected a whole number"),
        (PresetChoice { rounds: Some(0), ..PresetChoice::default() }, "--rounds: rounds = 0: expected"),
        (
            PresetChoice { methods: words(&["fedcad"]), ..PresetChoice::default() },
            "needs labelled samples on the server",
        ),
        (
            PresetChoice { set: words(&["clients.epohcs=1"]), ..PresetChoice::default() },
            "did you mean 'clients.epochs'?",
        ),
    ] {
        let error = preset.plan(&choice, Path::new("out"), |_| Ok(())).err().unwrap().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn wrong_presets_are_refused_with_the_place() {
    assert!(read(TINY).is_ok());
    for (from, to, said) in [
        ("title = \"A table\"\n", "", "title is missing"),
        ("source =", "sauce =", "mine.toml:2:1: unknown key 'sauce'"),
        ("seeds = [5, 7]", "seeds = [5, 5]", "mine.toml:3:1: seeds: expected a list of different"),
        ("rounds = 2\n", "rounds = 0\n", "mine.toml:6:1: rounds = 0: expected"),
        ("rounds = 2\n", "rounds = 2\nseeds = [1]\n", "mine.toml:7:1: config.seeds: seeds go at the top"),
        ("kind = \"final\"", "kind = \"finale\"", "mine.toml:13:1: quantity.0.kind = \"finale\""),
        ("name = \"rounds\"", "name = \"accuracy\"", "quantity.1.name: there are two with the name 'accuracy'"),
        ("name = \"b\"", "name = \"../b\"", "mine.toml:24:1: cell.1.name = \"../b\": expected letters"),
        ("target = 65", "target = 165", "mine.toml:25:1: cell.1.target = 165"),
        ("set.partition.alpha = 1.0", "set.partition.alfa = 1.0", "mine.toml:26:15: unknown key 'partition.alfa'"),
        ("rows.fedprox.", "rows.fedproxy.", "mine.toml:27:6: cell.1.rows.fedproxy: there is no row 'fedproxy'"),
        (
            "[50.5, 60]",
            "[50.5, 160]",
            "mine.toml:31:29: row.0.published.accuracy.1 = 160: expected a number from 0 to 100",
        ),
        ("[50.5, 60]", "[50.5]", "expected a list with one value for each of 2 cells"),
        ("[50.5, 60]", "[50.5, \"never\"]", "row.0.published.accuracy.1 = \"never\": expected a number from 0 to 100"),
        ("[0.5, \"-\"]", "[-0.5, \"-\"]", "mine.toml:32:16: row.0.sd.accuracy.0 = -0.5"),
        (
            "published.rounds = [2, 1]",
            "published.round = [2, 1]",
            "there is no quantity 'round'; there are accuracy, rounds",
        ),
        ("set.method.name = \"fedntd\"", "set.method.name = \"fedtnd\"", "mine.toml:43:12: method.name = \"fedtnd\""),
        ("set.method.mu = 0.1", "set.method.nu = 0.1", "mine.toml:37:12: unknown key 'method.nu'"),
        ("name = \"fedavg\"", "name = \"fedaverage\"", "there is no row with published numbers 'fedavg'"),
        (
            "seeds = [5, 7]",
            "baseline = \"more\"",
            "mine.toml:3:1: baseline: there is no row with published numbers 'more'",
        ),
        (
            "kind = \"final\"",
            "kind = \"round\"\nat = 3",
            "mine.toml:14:1: quantity.0.at = 3: the cell 'a' has 2 rounds",
        ),
    ] {
        assert!(TINY.contains(from), "{from}");
        let error = read(&TINY.replacen(from, to, 1)).map(|_| ()).expect_err(to);
        assert!(error.contains(said), "{to}: {error}");
    }
    let error = Preset::find(Path::new("feddistill")).unwrap_err().to_string();
    assert!(error.contains("did you mean one of feddistill/table2, feddistill/table3"), "{error}");
    let error = Preset::find(Path::new("fedntd/table3")).unwrap_err().to_string();
    assert!(
        error.contains("there is no table 'fedntd/table3', and no such file") && error.contains("did you mean"),
        "{error}"
    );
    assert!(Preset::find(Path::new("mine.toml")).unwrap_err().to_string().contains("cannot read mine.toml"));
}
