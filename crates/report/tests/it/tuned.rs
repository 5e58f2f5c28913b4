//! Methods with what was chosen for them.

use std::fs;
use std::path::Path;

use crate::records::{header, run};
use crate::studies::{MADE, load};
use fedelity_report::{Comparison, Options, ReportPage, TableColumn, TableSyntax, render};

/// The folder of a sweep with `[tune]`: FedAvg has another learning rate than FedCAD, and its partition another name.
fn tuned(folder: &Path, chosen: &str) {
    for (stage, seeds) in [("choose", 11..=12), ("compare", 1..=3)] {
        for (method, (name, lr)) in [("fedavg", 0.05), ("fedcad", 0.01)].iter().enumerate() {
            for seed in seeds.clone() {
                let path = folder.join(format!("{stage}/{name}-lr/seed-{seed}"));
                let mut header = header(MADE, name, seed);
                if stage == "choose" {
                    header.dataset.push_str("-held-out");
                }
                run(&path, MADE, &header, method);
                fs::write(path.join("config.toml"), format!("[optimizer]\nlr = {lr}\n")).unwrap();
                fs::write(path.join("sweep.json"), format!(r#"{{"set": ["rounds=6", "optimizer.lr={lr}"]}}"#)).unwrap();
            }
        }
    }
    fs::write(folder.join("chosen.json"), chosen).unwrap();
}

#[test]
fn tuned_methods_are_compared_from_the_folder_alone() {
    let dir = tempfile::tempdir().unwrap();
    tuned(dir.path(), r#"[{"task": "fedavg", "tuned": ["optimizer.lr"]}, {"task": "fedcad", "tuned": []}]"#);
    for folder in [dir.path().to_path_buf(), dir.path().join("compare")] {
        let found = Comparison::new(&load(&folder), &Options::default()).unwrap();
        assert_eq!((found.settings.len(), found.tuned.as_slice()), (1, &["optimizer.lr".to_string()][..]));
        let rows: Vec<(&str, &[u64])> =
            found.rows.iter().map(|row| (row.name.as_str(), row.seeds.as_slice())).collect();
        assert_eq!(rows, [("fedavg", &[1, 2, 3][..]), ("fedcad", &[1, 2, 3])], "those that chose are no results");
        assert_eq!(found.rows[1].difference.unwrap().summary.n, 3);
        assert_eq!(found.rows[0].chosen.as_deref(), Some("lr=0.05"));
        assert!(found.notes.iter().any(|note| note.ends_with("held-out training samples: optimizer.lr.")));
        let markdown = render(&found, TableSyntax::Markdown, &[]);
        assert!(
            markdown.lines().next().unwrap().ends_with(" chosen |") && markdown.contains("| lr=0.01 |"),
            "{markdown}"
        );
        assert!(render(&found, TableSyntax::Csv, &[]).lines().nth(2).unwrap().contains(",lr=0.01,"));
        let latex = render(&found, TableSyntax::Latex, &[TableColumn::Difference, TableColumn::Chosen]);
        assert!(latex.contains("& lr=0.01 \\\\") && latex.contains("\nfedcad & "), "{latex}");
        let html = ReportPage::new(&load(&folder), None).unwrap().html();
        assert!(html.contains("<th>chosen</th>") && html.contains(">lr=0.05</td>") && !html.contains("fedavg lr"));
    }
    // By themselves, the runs that chose can be looked at.
    assert_eq!(load(&dir.path().join("choose")).groups[0].runs.len(), 2);
}

#[test]
fn runs_of_an_earlier_choice_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let line = |task, lr| format!(r#"{{"task": "{task}", "set": ["rounds=6", "optimizer.lr={lr}"], "tuned": []}}"#);
    let chosen = format!("[{}, {}]", line("fedavg", 0.05), line("fedcad", 0.01));
    tuned(dir.path(), &chosen);
    assert_eq!(load(dir.path()).left_out, []);
    for seed in 1..=2 {
        let path = dir.path().join(format!("compare/fedavg-old/seed-{seed}"));
        run(&path, MADE, &header(MADE, "fedavg", seed), 0);
        fs::write(path.join("config.toml"), "[optimizer]\nlr = 0.5\n").unwrap();
        fs::write(path.join("sweep.json"), r#"{"set": ["rounds=6", "optimizer.lr=0.5"]}"#).unwrap();
    }
    for folder in [dir.path().to_path_buf(), dir.path().join("compare")] {
        let study = load(&folder);
        assert_eq!(study.groups.iter().map(|group| group.runs.len()).collect::<Vec<_>>(), [3, 3], "{folder:?}");
        let [out] = &study.left_out[..] else { panic!("{:?}", study.left_out) };
        assert_eq!(out.path, dir.path().join("compare"));
        assert!(out.what.starts_with("2 runs of an earlier choice are left out: chosen.json"), "{}", out.what);
        assert!(ReportPage::new(&study, None).unwrap().html().contains("2 runs of an earlier choice"));
    }
    // By themselves, they can be looked at.
    assert_eq!(load(&dir.path().join("compare/fedavg-old")).groups[0].runs.len(), 2);
}

#[test]
fn choices_of_earlier_versions_and_damaged_ones_are_read() {
    for (chosen, problems) in [(r#"[{"task": "fedavg", "set": []}]"#, 0), ("[{\"tuned\": 3", 1)] {
        let dir = tempfile::tempdir().unwrap();
        tuned(dir.path(), chosen);
        let study = load(&dir.path().join("compare"));
        assert_eq!((study.settings.len(), study.tuned().len()), (2, 0), "{chosen}");
        let said = study.left_out.iter().filter(|out| out.what.starts_with("chosen.json of its sweep cannot be read"));
        assert_eq!(said.count(), 6 * problems, "{:?}", study.left_out);
    }
}
