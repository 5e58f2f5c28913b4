//! Runs the commands of a page, in a folder of their own and in the order of the page.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::{env, fs};

use assert_cmd::cargo::cargo_bin;
use tempfile::TempDir;

use super::page::{BookPage, Command, Fence, root};

/// Where the commands of one page run.
pub(super) struct Shell {
    folder: TempDir,
    path: std::ffi::OsString,
}

impl Shell {
    /// A folder with the examples, in which `fedelity` is the program under test.
    pub(super) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        copy(&root().join("examples"), &folder.path().join("examples"));
        let program = cargo_bin("fedelity");
        let mut folders = vec![program.parent().unwrap().to_path_buf()];
        if let Some(python) = env::var_os("FEDELITY_PYTHON") {
            let bin = folder.path().join(".bin");
            fs::create_dir(&bin).unwrap();
            let script = format!("#!/bin/sh\nexec '{}' \"$@\"\n", python.to_string_lossy());
            fs::write(bin.join("python3"), script).unwrap();
            fs::set_permissions(bin.join("python3"), fs::Permissions::from_mode(0o755)).unwrap();
            folders.insert(0, bin);
        }
        folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
        Self { path: env::join_paths(folders).unwrap(), folder }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a command line as a terminal shows it: both streams together, and the exit code.
    pub(super) fn run(&self, line: &str) -> (i32, String) {
        let mut shell = Process::new("sh");
        shell.args(["-c", &format!("exec 2>&1\n{line}")]).current_dir(self.folder.path()).stdin(Stdio::null());
        shell.env("PATH", &self.path).env("HOME", self.folder.path()).env("BROWSER", "true");
        for name in ["FEDELITY_DATA", "FEDELITY_ISA", "NO_COLOR"] {
            shell.env_remove(name);
        }
        let output = shell.output().unwrap();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Writes the files and runs the commands of a page. With `FEDELITY_BOOK=renew`, what differs from the page is
    /// written into it instead of being an error.
    pub(super) fn follow(&self, page: &BookPage) {
        let is_renewing = env::var_os("FEDELITY_BOOK").is_some_and(|value| value == "renew");
        let mut differences = Vec::new();
        for fence in page.fences() {
            if let Some(name) = fence.option("file") {
                let path = self.path(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, &fence.text).unwrap();
            }
            if fence.kind == "console" {
                self.console(page, &fence, &mut differences);
            }
        }
        if is_renewing && !differences.is_empty() {
            self.renew(page, &differences);
            return;
        }
        let told = differences.iter().map(|(command, output)| {
            format!(
                "{}:{}: $ {}\nthe page shows\n{}\nthe program prints\n{output}",
                page.path,
                command.line,
                command.text,
                command.output.join("\n")
            )
        });
        let told: Vec<String> = told.collect();
        let help = "FEDELITY_BOOK=renew cargo test -p fedelity --test it book writes it into the page";
        assert!(told.is_empty(), "{}\n{help}", told.join("\n"));
    }

    fn console(&self, page: &BookPage, fence: &Fence, differences: &mut Vec<(Command, String)>) {
        if let Some(module) = fence.option("python") {
            let (code, _) = self.run(&format!("python3 -c 'import {module}'"));
            if code != 0 {
                note(&format!("{}:{} is skipped: python3 has no {module}", page.path, fence.line));
                return;
            }
        }
        let code = fence.option("exit").map_or(0, |code| code.parse().unwrap());
        for command in fence.commands() {
            let at = format!("{}:{}: $ {}", page.path, command.line, command.text);
            if fence.not_run().is_some() {
                self.parses(&command.text, &at);
                continue;
            }
            let (found, output) = self.run(&command.text);
            assert_eq!(found, code, "{at}\n{output}");
            let (shown, printed) = (masked(&command.output), masked(&trimmed(&output)));
            if !shown.is_empty() && !fits(&lines(&shown), &lines(&printed)) {
                differences.push((command, output));
            }
        }
    }

    /// Puts what the program prints into the page. Lines that still fit stay as they are, and the path of this folder
    /// becomes a wildcard.
    fn renew(&self, page: &BookPage, differences: &[(Command, String)]) {
        let mut text: Vec<String> = page.text.lines().map(String::from).collect();
        for (command, output) in differences.iter().rev() {
            let start = command.line - 1 + command.text.lines().count();
            let new = trimmed(output).into_iter().map(|line| {
                let kept = command.output.iter().find(|shown| *shown != "..." && alike(&mask(shown), &mask(&line)));
                let wild = line.replace(self.folder.path().to_str().unwrap(), "[..]");
                kept.cloned().unwrap_or(wild)
            });
            text.splice(start..start + command.output.len(), new.collect::<Vec<_>>());
        }
        fs::write(root().join(&page.path), text.join("\n") + "\n").unwrap();
    }

    /// Whether the program would accept the arguments of a command that is not run.
    pub(super) fn parses(&self, line: &str, at: &str) {
        let Some(arguments) = line.strip_prefix("fedelity ") else { return };
        let arguments = arguments.split(" > ").next().unwrap_or_default();
        let (code, output) = self.run(&format!("fedelity {arguments} --help"));
        // An option that is only named, such as `fedelity partition -o`, has no value.
        let is_named = output.contains("a value is required for");
        assert!((code == 0 && output.contains("Usage: fedelity")) || is_named, "{at}\n{output}");
    }
}

/// Copies a folder, without hidden files.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (from, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
        match from.is_dir() {
            _ if name.to_string_lossy().starts_with('.') => {}
            true => copy(&from, &to.join(name)),
            false => drop(fs::copy(&from, to.join(name)).unwrap()),
        }
    }
}

#[allow(clippy::print_stderr)]
fn note(text: &str) {
    eprintln!("{text}");
}

fn trimmed(output: &str) -> Vec<String> {
    let mut lines: Vec<String> = output.lines().map(|line| line.trim_end().to_string()).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

fn masked(text: &[String]) -> Vec<String> {
    text.iter().map(|line| mask(line)).collect()
}

/// A line in which all times are the same, and columns are one space apart: their width depends on times.
pub(super) fn mask(line: &str) -> String {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    for at in (1..words.len()).rev() {
        let is_number = words[at - 1].parse::<f64>().is_ok();
        if is_number && ["s", "ms"].contains(&words[at]) {
            words.splice(at - 1..=at, ["TIME"]);
        } else if is_number && words[at] == "min" && words.get(at + 1) == Some(&"TIME") {
            words.splice(at - 1..=at + 1, ["TIME"]);
        }
    }
    words.join(" ")
}

fn lines(text: &[String]) -> Vec<&str> {
    text.iter().map(String::as_str).collect()
}

/// Whether lines are as shown: `...` on a line of its own stands for any lines, `[..]` for any characters.
pub(super) fn fits(shown: &[&str], lines: &[&str]) -> bool {
    match shown.split_first() {
        None => lines.is_empty(),
        Some((&"...", rest)) => (0..=lines.len()).any(|skipped| fits(rest, &lines[skipped..])),
        Some((first, rest)) => {
            lines.split_first().is_some_and(|(line, others)| alike(first, line) && fits(rest, others))
        }
    }
}

fn alike(shown: &str, line: &str) -> bool {
    match shown.split_once("[..]") {
        None => shown == line,
        Some((start, rest)) => line.strip_prefix(start).is_some_and(|line| {
            line.char_indices().map(|(at, _)| at).chain([line.len()]).any(|at| alike(rest, &line[at..]))
        }),
    }
}
