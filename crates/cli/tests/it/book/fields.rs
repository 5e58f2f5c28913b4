//! `docs/record.md` lists the fields of the records: all of them, and no others.

use std::collections::BTreeSet;
use std::fs;

use fedelity_record::{
    Incident, IncidentKind, Leaves, Measure, Notice, PrivacySpent, ProtectionRecord, RoundNotice, Status, Unlearnt,
};
use serde_json::{Value, json};

use super::page::BookPage;
use super::shell::Shell;

/// The fields in the first column of the table below a heading.
fn listed(page: &BookPage, heading: &str) -> BTreeSet<String> {
    let rows = page.section(heading).lines().filter_map(|line| line.strip_prefix("| `"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_string())).collect()
}

fn fields(object: &Value) -> BTreeSet<String> {
    object.as_object().unwrap_or_else(|| panic!("{object}")).keys().cloned().collect()
}

#[test]
fn every_field_of_the_records_is_documented() {
    let shell = Shell::new();
    let (code, output) = shell.run(
        "fedelity run --metrics all --output a --set rounds=2 --set partition.clients=4 --set clients.per-round=2 \
         --set clients.epochs=1 --set partition.alpha=1.0 --set method.name=fedntd",
    );
    assert_eq!(code, 0, "{output}");
    let text = |name: &str| fs::read_to_string(shell.path("a").join(name)).unwrap();
    let parse = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let rounds: Vec<Value> = text("rounds.jsonl").lines().map(parse).collect();
    let (header, last) = (&rounds[0], &rounds[2]);
    let summary = parse(&text("summary.json"));

    // What a healthy run does not have.
    let notices = [
        Notice::Outlier { client: 1, measure: Measure::Drift, value: 1.0, median: 1.0 },
        Notice::Chance { accuracy: 0.1, best: 0.5, chance: 0.1 },
        Notice::OneClass { class: 1, share: 1.0 },
        Notice::Unlearnt(Unlearnt { accuracy: 0.1, chance: 0.1, evaluations: 10 }),
        Notice::Fall { accuracy: 0.1, best: 0.5, client: 1, since: 1 },
    ];
    let all = |values: Vec<Value>| values.iter().flat_map(fields).collect::<BTreeSet<_>>();
    let notice = all(notices.into_iter().map(|notice| json!(RoundNotice { round: 1, notice })).collect());
    let status = all(vec![
        json!(Status::Finished),
        json!(Status::StoppedEarly { best: 1, patience: 1 }),
        json!(Status::Diverged { round: 1, client: None }),
    ]);
    // What only some runs have.
    let with = |found: &Value, more: &[&str]| -> BTreeSet<String> {
        fields(found).into_iter().chain(more.iter().map(ToString::to_string)).collect()
    };

    let seldom = ["client-accuracy", "validation", "kept", "early-stop", "notices", "protection"];
    let round = with(last, &[&seldom[..], &["incidents", "accepted", "repeats"]].concat());
    let page = BookPage::read("docs/record.md");
    let check = |heading: &str, found: BTreeSet<String>| {
        assert_eq!(listed(&page, heading), found, "docs/record.md, {heading}: left is the page, right the record");
    };
    check(
        "## The header",
        with(header, &["client-names", "data-gaps", "positive", "validation-samples", "attackers", "federated"]),
    );
    check("### `local-evaluation`", fields(&header["local-evaluation"]));
    assert_eq!(header["leaves"]["counts-and-loss"], true);
    check("### `leaves`", fields(&json!(Leaves { clip: Some(1.0), noise: Some(1.0), ..Leaves::default() })));
    check("## A round", round);
    check("### `local`", fields(&last["local"]));
    check("### `local.clients`", with(&last["local"]["clients"][0], &["own"]));
    check("### `local.focus`", fields(&last["local"]["focus"]));
    check("### `drift` and `local.accuracy`", fields(&last["drift"]));
    check("### `weights`", fields(&last["weights"]));
    check("### `seconds`", fields(&last["seconds"]));
    let privacy = Some(PrivacySpent { epsilon: 1.0, delta: 1e-5 });
    check("### `protection`", fields(&json!(ProtectionRecord { clipped: Some(1), privacy })));
    check("### `notices`", notice);
    let incident = Incident { client: 1, kind: IncidentKind::Refused, reason: "why".to_string(), repeat: 1 };
    check("### `incidents`", fields(&json!(incident)));
    check("## The summary", with(&summary, &["best-model", "incidents", "unlearnt", "privacy"]));
    check("### `status`", status);
    check("### `best`", fields(&summary["best"]));
    check("## Who holds what", fields(&parse(&text("holdings.json"))));
    check("## The partition", fields(&parse(&text("partition.json"))));
    let files: BTreeSet<String> = super::super::place::files(&shell.path("a")).into_iter().collect();
    let listed = listed(&page, "## The files of a run");
    assert!(files.is_subset(&listed), "{files:?} {listed:?}");
}
