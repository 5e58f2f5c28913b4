//! The book in `docs/`: its commands are run, its links lead somewhere, and what can be generated is.

mod fields;
mod page;
mod shell;

use std::collections::BTreeSet;
use std::path::Path;

use fedelity_data::augment::{Padding, Recipe};
use fedelity_data::{Augmentation, Kind};
use fedelity_keys::{Keys, Selected};
use page::{BookPage, root};
use shell::{Shell, fits, mask};

/// One test per page with commands.
macro_rules! pages {
    ($($name:ident: $path:literal),* $(,)?) => {
        const TESTED: &[&str] = &[$($path),*];

        mod commands {
            $(#[test]
            fn $name() {
                super::Shell::new().follow(&super::BookPage::read($path));
            })*
        }
    };
}

pages! {
    augmentation: "docs/augmentation.md",
    choose_method: "docs/choose-method.md",
    cluster: "docs/cluster.md",
    compare: "docs/compare.md",
    faults: "docs/faults.md",
    first_steps: "docs/first-steps.md",
    flower: "docs/flower.md",
    real_sites: "docs/sites.md",
    introduction: "docs/introduction.md",
    new_method: "docs/new-method.md",
    numerics: "docs/numerics.md",
    own_images: "docs/own-images.md",
    own_model: "docs/own-model.md",
    own_tables: "docs/own-tables.md",
    own_texts: "docs/own-texts.md",
    partitions: "docs/partitions.md",
    privacy: "docs/privacy.md",
    record: "docs/record.md",
    report: "docs/report.md",
    reproduce: "docs/reproduce.md",
    results: "docs/results.md",
    resume: "docs/resume.md",
    saved_models: "docs/saved-models.md",
    sweeps: "docs/sweeps.md",
    text: "docs/text.md",
    trackers: "docs/trackers.md",
    training_speed: "docs/training-speed.md",
    troubleshooting: "docs/troubleshooting.md",
    what_helps: "docs/what-helps.md",
}

#[test]
fn every_page_with_commands_is_tested() {
    for page in BookPage::all() {
        let has_commands = page.fences().iter().any(|fence| fence.kind == "console");
        let listed = TESTED.contains(&page.path.as_str());
        assert_eq!(has_commands, listed, "{}: pages! in this file lists the pages with console blocks", page.path);
        for fence in page.fences().iter().filter(|fence| fence.kind == "console") {
            assert!(!fence.commands().is_empty(), "{}:{}", page.path, fence.line);
            assert!(fence.not_run().is_none_or(|why| why.len() > 10), "{}:{}: say why", page.path, fence.line);
            let known = ["", "not-run:", "exit=", "python="];
            let first = fence.options.split_inclusive([' ', '=']).next().unwrap_or("").trim_end();
            assert!(known.contains(&first), "{}:{}: {}", page.path, fence.line, fence.options);
        }
        // No command escapes: those in other blocks would not be run.
        let others =
            page.fences().into_iter().filter(|fence| fence.kind != "console" && fence.option("file").is_none());
        let indented = page.text.lines().filter(|line| line.starts_with("    ")).map(String::from);
        for line in others.flat_map(|fence| fence.text.lines().map(String::from).collect::<Vec<_>>()).chain(indented) {
            let line = line.trim_start().trim_start_matches("$ ");
            assert!(!line.starts_with("fedelity "), "{}: not in a console block: {line}", page.path);
        }
    }
}

/// Commands in the text, in README and in the comments of examples have arguments that the program takes.
#[test]
fn every_command_in_the_text_parses() {
    let shell = Shell::new();
    let mut seen = BTreeSet::new();
    let others = ["README.md", "CONTRIBUTING.md"].map(BookPage::read);
    for page in BookPage::all().iter().chain(&others) {
        let indented = page.text.lines().filter_map(|line| line.strip_prefix("    ")).map(String::from);
        for line in page.spans().into_iter().chain(indented) {
            let line = line.split(['#', ';']).next().unwrap_or_default();
            let command = line.split("   ").next().unwrap_or_default().trim();
            if command.starts_with("fedelity ") && seen.insert(command.to_string()) {
                // A command that is only named, such as `fedelity data`, prints its help as well.
                shell.parses(command, &format!("{}: {command}", page.path));
            }
        }
    }
    assert!(seen.len() > 30, "{seen:?}");
}

/// A promise is held by tests that exist.
#[test]
fn every_promise_names_its_tests() {
    let page = BookPage::read("docs/promises.md");
    let mut tests = 0;
    for row in page.text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| promise")) {
        let held_by = row.split(" | ").nth(1).unwrap_or_default();
        let mut file: Option<(&str, String)> = None;
        for span in held_by.split('`').skip(1).step_by(2) {
            match &file {
                _ if span.ends_with(".rs") => {
                    file = Some((span, std::fs::read_to_string(root().join(span)).unwrap_or_else(|_| panic!("{row}"))));
                }
                Some((path, text)) => {
                    assert!(text.contains(&format!("fn {span}(")), "docs/promises.md: {path} has no test {span}");
                    tests += 1;
                }
                // Programs that are run by hand.
                None => assert!(held_by.contains("by hand"), "{row}"),
            }
        }
    }
    assert!(tests > 15, "{tests}");
}

#[test]
fn generated_pages_are_current() {
    let shell = Shell::new();
    let (code, output) = shell.run("fedelity reference pages");
    assert_eq!(code, 0, "{output}");
    let made: BTreeSet<String> = super::place::files(&shell.path("pages")).into_iter().collect();
    let kept: BTreeSet<String> = super::place::files(&root().join("docs/reference")).into_iter().collect();
    let renew = "cargo run -p fedelity -- reference docs/reference --overwrite";
    assert_eq!(made, kept, "docs/reference is out of date; renew it: {renew}");
    for name in made {
        let new = std::fs::read_to_string(shell.path("pages").join(&name)).unwrap();
        let old = BookPage::read(&format!("docs/reference/{name}")).text;
        let first = new.lines().zip(old.lines()).find(|(new, old)| new != old);
        assert!(new == old, "docs/reference/{name} is out of date; renew it: {renew}\n{first:?}");
    }
    let (code, output) = shell.run("fedelity reference pages");
    assert!(code == 2 && output.contains("--overwrite"), "{output}");
}

#[test]
fn every_link_leads_somewhere() {
    let mut pages = BookPage::all();
    pages.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "golden/README.md"].map(BookPage::read),
    );
    for page in &pages {
        let folder = Path::new(&page.path).parent().unwrap();
        for link in page.links() {
            if link.starts_with("https://") || link.starts_with("http://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').map_or((&*link, None), |(file, anchor)| (file, Some(anchor)));
            let target = if file.is_empty() { page.path.clone() } else { normal(&folder.join(file)) };
            assert!(root().join(&target).exists(), "{}: {link}: there is no {target}", page.path);
            let in_book = !page.path.starts_with("docs/") || target.starts_with("docs/");
            assert!(in_book, "{}: {link} leads out of the book", page.path);
            if let Some(anchor) = anchor {
                let anchors = BookPage::read(&target).anchors();
                assert!(anchors.iter().any(|one| one == anchor), "{}: {link}: {anchors:?}", page.path);
            }
        }
    }
}

/// A relative path without `..`.
fn normal(path: &Path) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.to_str().unwrap().split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn the_contents_list_every_page_once() {
    let contents = BookPage::read("docs/SUMMARY.md");
    let listed: Vec<String> = contents.links().iter().map(|link| format!("docs/{link}")).collect();
    let mut pages: Vec<String> = BookPage::all().into_iter().map(|page| page.path).collect();
    pages.retain(|path| path != "docs/SUMMARY.md");
    for path in &pages {
        let times = listed.iter().filter(|one| *one == path).count();
        assert_eq!(times, 1, "{path} must have one line in docs/SUMMARY.md");
    }
    assert_eq!(listed.len(), pages.len(), "docs/SUMMARY.md lists a page that does not exist");
}

#[test]
fn every_partition_and_augmentation_is_explained() {
    let page = BookPage::read("docs/partitions.md");
    for variant in Kind::SELECTOR.variants {
        let section = page.section(&format!("## `{}`", variant.words.concat()));
        for key in variant.keys {
            assert!(section.contains(&format!("`{}", key.name)), "{}: {}", variant.words.concat(), key.name);
        }
    }
    let page = BookPage::read("docs/augmentation.md");
    let names = Augmentation::SCHEMA.keys.iter().map(|key| key.name);
    let words = Recipe::ALL.map(Recipe::name).into_iter().chain(Padding::ALL.map(Padding::name));
    for name in names.chain(words) {
        assert!(page.spans().iter().any(|span| span.contains(name)), "{}: {name}", page.path);
    }
}

/// The code of the chapter is that of a method which the tests of `methods` run.
#[test]
fn the_new_method_is_the_tested_one() {
    let page = BookPage::read("docs/new-method.md");
    let tested = std::fs::read_to_string(root().join("crates/methods/tests/it/tutorial/mine.rs")).unwrap();
    let shown: Vec<String> = page.fences().into_iter().filter(|fence| fence.kind == "rust").map(|f| f.text).collect();
    assert!(shown.contains(&tested), "docs/new-method.md must show crates/methods/tests/it/tutorial/mine.rs");
}

#[test]
fn shown_output_has_wildcards() {
    assert!(fits(&["a", "...", "b [..] c"], &["a", "x", "b 12 c"]));
    assert!(fits(&["...", "z"], &["z"]) && fits(&["t [..]"], &["t "]) && fits(&["a[..]b[..]c"], &["axbbyc"]));
    assert!(!fits(&["a"], &["a", "b"]) && !fits(&["a", "b"], &["a"]) && !fits(&["a [..] c"], &["a b d"]));
    assert_eq!(mask("a    1.25 s  2 min 05 s left 3 s1 95.0 ms"), "a TIME TIME left 3 s1 TIME");
    assert!(!fits(&[], &["a"]) && !fits(&["...", "z"], &["z", "y"]));
}
