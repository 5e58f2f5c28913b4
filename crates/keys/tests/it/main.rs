//! Tables of keys, as in a configuration.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use fedelity_keys::toml::Table;
use fedelity_keys::{AtZero, Choice, Context, KeyError, Keys, Typed, ValueType, keys, read, write};

/// How loud.
#[derive(Clone, Copy, Debug, PartialEq, Choice)]
enum Volume {
    Soft,
    VeryLoud,
    #[choice("11")]
    Eleven,
}

/// Who holds what.
#[keys(tag = "kind", default = "dirichlet")]
enum Split {
    /// The same for all.
    Iid,
    /// Drawn.
    Dirichlet {
        /// Concentration.
        #[key(default = 0.1, above = 0)]
        alpha: f64,
        /// Fewest samples.
        #[key(default = 10)]
        min_size: usize,
    },
    /// From a file.
    File(PathTable),
    /// A known one.
    #[key(words = Volume)]
    Known(Known),
}

#[keys]
struct PathTable {
    /// Where.
    path: PathBuf,
}

#[keys]
struct Known {
    /// Which.
    #[key(default = "soft")]
    kind: Volume,
    /// Copies.
    copies: Option<usize>,
}

#[keys(check = odd)]
struct Section {
    /// Who holds what.
    #[key(flatten)]
    kind: Split,
    /// Strength of the pull.
    ///
    /// More is stronger.
    #[key(symbol = "mu", default = 0.3, min = 0, paper = "0.1", zero = fedavg)]
    mu: f32,
    /// A share.
    #[key(default = 1.0, above = 0, max = 1)]
    share: f64,
    /// The share in halves.
    #[key(instead = "share")]
    halves: Option<usize>,
    /// Seeds.
    #[key(default = [1, 2])]
    seeds: Vec<u64>,
    /// Height and width.
    #[key(min = 1)]
    size: Option<(usize, usize)>,
    /// How loud.
    #[key(default = "soft")]
    volume: Volume,
    /// How long it lasts.
    #[key(default = 3, only("volume", is_loud))]
    echo: Option<usize>,
    /// How often it is heard.
    #[key(default = 5, unless("volume", is_loud))]
    times: Option<usize>,
}

fn odd(section: &Section) -> Result<(), KeyError> {
    if section.times == Some(4) { Err(KeyError::expected("times", 4, "an odd number")) } else { Ok(()) }
}

fn is_loud(volume: &str) -> bool {
    volume != "soft"
}

fn section(text: &str) -> Result<(Section, String), KeyError> {
    let (section, filled) = read::<Section>(&text.parse::<Table>().unwrap(), "part", &mut ())?;
    Ok((section, write(Section::SCHEMA, &filled)))
}

fn message(text: &str) -> String {
    section(text).unwrap_err().message
}

#[test]
fn defaults_are_filled_in_and_written_back() {
    let (found, filled) = section("alpha = 3\nmu = 0.7").unwrap();
    assert_eq!(found.kind, Split::Dirichlet { alpha: 3.0, min_size: 10 });
    assert_eq!((found.mu, found.seeds, found.size), (0.7, vec![1, 2], None));
    assert_eq!(
        filled,
        "kind = \"dirichlet\"\nalpha = 3\nmin-size = 10\nmu = 0.7\nshare = 1.0\nseeds = [1, 2]\nvolume = \"soft\"\ntimes = 5\n"
    );
    assert_eq!(section(&filled).unwrap().1, filled);
}

#[test]
fn paths_are_found_wherever_they_are() {
    let shout = |path: &mut String| *path = path.to_uppercase();
    let mut filled = read::<Section>(&"kind = \"file\"\npath = \"a\"".parse().unwrap(), "", &mut ()).unwrap().1;
    Section::SCHEMA.change_paths(&mut filled, &shout);
    assert_eq!((filled["path"].as_str(), filled["kind"].as_str()), (Some("A"), Some("file")));
}

#[test]
fn a_choice_has_a_name_even_if_it_stands_for_several_words() {
    for name in ["iid", "dirichlet", "very-loud", "11"] {
        assert_eq!(section(&format!("kind = \"{name}\"")).unwrap().0.kind.name(), name);
    }
}

#[test]
fn one_of_two_keys() {
    assert_eq!(message("share = 0.5\nhalves = 1"), "part.halves: expected part.halves or part.share, not both");
    assert_eq!(section("halves = 1").unwrap().0.halves, Some(1));
    assert_eq!(Section::SCHEMA.alternatives(), [("halves".to_string(), "share".to_string())]);
}

#[test]
fn a_selector_has_its_own_keys() {
    assert_eq!(section("kind = \"iid\"").unwrap().0.kind, Split::Iid);
    let known = section("kind = \"very-loud\"\ncopies = 2").unwrap().0.kind;
    assert_eq!(known, Split::Known(Known { kind: Volume::VeryLoud, copies: Some(2) }));
    assert_eq!(section("kind = \"11\"").unwrap().0.kind, Split::Known(Known { kind: Volume::Eleven, copies: None }));
    assert_eq!(
        message("kind = \"iid\"\nalpha = 1.0"),
        "part.alpha: not a key of part.kind = \"iid\" (its keys: none); it goes with dirichlet"
    );
    assert_eq!(message("kind = \"file\""), "part.kind = \"file\" needs part.path");
    assert_eq!(
        message("kind = \"dirichlett\""),
        "part.kind = \"dirichlett\": expected one of iid, dirichlet, file, soft, very-loud, 11; did you mean 'dirichlet'?"
    );
    assert!(message("kind = 3").starts_with("part.kind: expected one of iid, "));
}

#[test]
fn a_key_may_depend_on_another() {
    assert_eq!(section("volume = \"11\"").unwrap().0.echo, Some(3));
    assert_eq!(section("").unwrap().0.echo, None);
    assert_eq!(section("volume = \"11\"").unwrap().0.times, None);
    assert_eq!(section("volume = \"11\"\ntimes = 1").unwrap().0.times, Some(1));
    assert_eq!(message("times = 4"), "part.times = 4: expected an odd number");
    assert_eq!(message("echo = 2"), "part.echo: not a key of part.volume = \"soft\"; it goes with very-loud, 11");
}

/// The check of a table runs wherever the table is.
#[test]
fn tables_in_tables_are_checked() {
    #[keys]
    struct Outer {
        /// A section.
        part: Option<Section>,
    }
    let table = "[part]\ntimes = 4".parse::<Table>().unwrap();
    let error = read::<Outer>(&table, "", &mut ()).unwrap_err();
    assert_eq!(error.message, "part.times = 4: expected an odd number");
}

#[test]
fn messages_name_key_value_and_what_is_expected() {
    assert_eq!(message("mu = -1"), "part.mu = -1: expected a finite number of at least 0");
    assert!(message("mu = 1e39").ends_with(": expected a finite number of at least 0"));
    assert_eq!(message("mu = nan"), "part.mu = nan: expected a finite number of at least 0");
    assert_eq!(message("alpha = 0"), "part.alpha = 0: expected a finite number above 0");
    assert_eq!(message("share = 1.5"), "part.share = 1.5: expected a number above 0 and at most 1");
    assert_eq!(message("mu = \"hot\""), "part.mu: expected a finite number of at least 0, found the string \"hot\"");
    assert_eq!(message("min-size = -1"), "part.min-size = -1: expected a whole number of at least 0");
    assert_eq!(message("seeds = [1, -2]"), "part.seeds = [1, -2]: expected a list of whole numbers of at least 0");
    assert_eq!(message("size = [0, 3]"), "part.size = [0, 3]: expected a list of 2 whole numbers of at least 1");
    let text = message("seads = [1]");
    assert!(
        text.starts_with("unknown key 'part.seads', did you mean 'part.seeds'? (allowed in [part]: kind, alpha"),
        "{text}"
    );
}

#[test]
fn the_context_knows_where_values_came_from() {
    struct Host(Vec<String>);
    impl Context for Host {
        fn leave_out(&mut self, key: &str, selector: &str, chosen: &str) -> bool {
            self.0.push(format!("{key} {selector} {chosen}"));
            true
        }
        fn locate(&self, key: &str, path: &str) -> PathBuf {
            PathBuf::from(key).join(path)
        }
    }
    let mut host = Host(Vec::new());
    let table = "kind = \"file\"\npath = \"a\"\nalpha = 3".parse::<Table>().unwrap();
    let (section, _) = read::<Section>(&table, "part", &mut host).unwrap();
    assert_eq!(section.kind, Split::File(PathTable { path: "part.path/a".into() }));
    assert_eq!(host.0, ["part.alpha part.kind file"]);
}

#[test]
fn descriptions_come_from_the_fields() {
    let mu = Section::SCHEMA.key("mu").unwrap();
    assert_eq!((mu.summary(), mu.about), ("Strength of the pull.", "Strength of the pull.\nMore is stronger."));
    assert_eq!((mu.symbol, mu.paper, mu.default, mu.at_zero()), ("mu", "0.1", Some("0.3"), AtZero::FedAvg));
    assert_eq!(Section::SCHEMA.key("share").unwrap().at_zero(), AtZero::Refused);
    assert_eq!(
        Section::SCHEMA.names(),
        [
            "kind", "alpha", "min-size", "path", "copies", "mu", "share", "halves", "seeds", "size", "volume", "echo",
            "times"
        ]
    );
    assert!(matches!(<Volume as Typed>::TYPE, ValueType::Word(["soft", "very-loud", "11"])));
    assert_eq!(Volume::ALL.map(Volume::name), Volume::NAMES);
    assert_eq!(Volume::from_name("soft"), Some(Volume::Soft));
}
