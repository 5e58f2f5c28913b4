//! Noise, attacks and defences, as `check`, `compare` and `report` show them.

use serde_json::Value;

use crate::place::Place;

const NOISE: &[&str] = &[
    "clients.weighting=uniform",
    "server.clip-update=0.5",
    "privacy.noise=1.5",
    "privacy.delta=0.01",
    "partition.clients=5",
    "clients.per-round=2",
    "model.name=logistic",
    "rounds=2",
];

fn sets<'a>(all: &[&'a str]) -> Vec<&'a str> {
    all.iter().flat_map(|set| ["--set", *set]).collect()
}

#[test]
fn check_says_how_large_the_noise_is_and_what_it_is_worth() {
    let place = Place::new();
    let check = |more: &[&str]| place.call(&[&["check"][..], &sets(NOISE), &sets(more)].concat());
    let found = check(&[]);
    assert_eq!(found.code, 0, "{}", found.err);
    // 1.5 * 0.5 * sqrt(7850) / 2, and twice that over sqrt(2) at the client.
    let said = "norm about 33.23 in the mean of 2 updates, which has at most 0.5 without it: 66.45 times as much";
    assert!(found.out.contains(said), "{}", found.out);
    assert!(check(&["privacy.at=client"]).out.contains("norm about 46.99 in"), "{}", found.out);
    assert!(!found.out.contains("no protection") && !found.out.contains("privacy.delta = "), "{}", found.out);
    let weak = check(&["privacy.noise=1e-9"]);
    assert!(weak.out.contains("e18 (no protection) at delta 1e-2 after 2 rounds"), "{}", weak.out);
    let none = check(&["privacy.noise=1e-200"]);
    assert!(none.out.contains("Privacy     no bound on epsilon after 2 rounds: no protection"), "{}", none.out);
    let large = check(&["privacy.delta=0.3"]);
    let said = "Note: privacy.delta = 0.3: not below 1 / 5 clients, so the guarantee would allow";
    assert!(large.out.contains(said), "{}", large.out);
    let json = place.call(&[&["check", "--json"][..], &sets(NOISE), &sets(&["faults.late=0.2"])].concat());
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&json["faults"]["needed-uploads"], &json["faults"]["chances"]["late"]), (&1.into(), &0.2.into()));
    assert!((json["noise"]["norm"].as_f64().unwrap() - 33.2251).abs() < 1e-3, "{}", json["noise"]);
}

#[test]
fn results_name_their_noise_and_its_epsilon() {
    let place = Place::new();
    let run = place.call(&[&["run", "--output", "a"][..], &sets(NOISE)].concat());
    assert_eq!(run.code, 0, "{}", run.err);
    let json: Value = serde_json::from_str(&place.call(&["compare", "a", "--json"]).out).unwrap();
    let epsilon = json["rows"][0]["epsilon"].as_f64().unwrap();
    let text = place.call(&["compare", "a"]).out;
    let cell = format!("{epsilon:.2}");
    assert!(text.contains("epsilon") && text.contains(&cell), "{text}");
    for format in ["markdown", "latex", "csv"] {
        let text = place.call(&["compare", "a", "--format", format]).out;
        assert!(text.contains("epsilon"), "{text}");
    }
    assert_eq!(place.call(&["report", "a", "-o", "a.html"]).code, 0);
    let page = String::from_utf8(place.read("a.html")).unwrap();
    let start = page.split("<div id=cards>").next().unwrap();
    let said = "Server: updates clipped to norm 0.5. Noise: 1.5 times the clipping norm 0.5, at the server: epsilon ";
    assert!(start.contains(said) && start.contains("<th>epsilon</th>"), "{}", &start[start.len() - 3_000..]);
    // Without noise, there is no such column.
    assert_eq!(place.tiny(&["--output", "b"]).code, 0);
    assert!(!place.call(&["compare", "b"]).out.contains("epsilon"));
    assert_eq!(place.call(&["report", "b", "-o", "b.html"]).code, 0);
    assert!(!String::from_utf8(place.read("b.html")).unwrap().contains("<th>epsilon</th>"));
}

#[test]
fn defences_are_compared_with_the_plain_mean() {
    let place = Place::new();
    place.write(
        "sweep.toml",
        "[set]\nrounds = 2\n\"partition.clients\" = 6\n\"clients.per-round\" = 5\n\"clients.epochs\" = 1\n\
         \"model.name\" = \"logistic\"\n\"faults.attack\" = \"sign-flip\"\n\
         [[list]]\n\"server.rule\" = \"krum\"\n[[list]]\n\"server.rule\" = \"mean\"\n\"server.clip-update\" = 1.0\n\
         [[list]]\n\"server.rule\" = \"mean\"\n[[list]]\n\"server.rule\" = \"median\"\n",
    );
    let swept = place.call(&["sweep", "sweep.toml", "-o", "out"]);
    assert_eq!(swept.code, 0, "{}", swept.err);
    let json: Value = serde_json::from_str(&place.call(&["compare", "out", "--mix", "server", "--json"]).out).unwrap();
    assert_eq!(json["baseline"], "fedavg rule=mean", "{json}");
    // Names and notes are those that --baseline takes.
    let text = place.call(&["compare", "out", "--mix", "server"]).out;
    assert!(text.contains("Differences from fedavg rule=mean ") && !text.contains("FedAvg"), "{text}");
    let plain = place.call(&["report", "out", "-o", "plain.html"]);
    let mixed = place.call(&["report", "out", "--mix", "server", "-o", "mixed.html"]);
    assert_eq!((plain.code, mixed.code), (0, 0), "{}{}", plain.err, mixed.err);
    let page = |name: &str| String::from_utf8(place.read(name)).unwrap();
    let note = "Runs that differ in server are compared with each other, as asked.";
    assert!(page("mixed.html").contains(note) && !page("plain.html").contains(note));
    assert!(page("mixed.html").contains("Differences from FedAvg rule=mean"));
    assert!(page("plain.html").contains("Faults: 1 of 6 clients attack (sign-flip, factor 1.0)"));
    let idle = place.call(&["report", "out", "--mix", "rounds", "-o", "x.html"]);
    assert!(idle.code == 0 && idle.err.contains("--mix rounds: the runs do not differ in it"), "{}", idle.err);
}
