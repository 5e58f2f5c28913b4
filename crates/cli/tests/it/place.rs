//! The program in its own folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;

use assert_cmd::Command;
use tempfile::TempDir;

/// Settings that make a run take a fraction of a second.
pub(crate) const TINY: &[&str] = &[
    "rounds=2",
    "partition.clients=5",
    "partition.alpha=1.0",
    "clients.per-round=2",
    "clients.epochs=1",
    "model.name=logistic",
];

pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A process that goes on until it is dropped.
pub(crate) struct Endless(pub(crate) Child);

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the program in its own folder.
pub(crate) struct Place(pub(crate) TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    pub(crate) fn call(&self, args: &[&str]) -> Answer {
        self.call_with(&[], args)
    }

    /// With environment variables.
    pub(crate) fn call_with(&self, variables: &[(&str, &str)], args: &[&str]) -> Answer {
        let mut command = Command::cargo_bin("fedelity").unwrap();
        command.current_dir(self.0.path()).env_remove("FEDELITY_DATA").env_remove("FEDELITY_ISA");
        let output = command.envs(variables.iter().copied()).args(args).output().unwrap();
        Answer {
            code: output.status.code().unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// `run` with the tiny settings first.
    pub(crate) fn tiny(&self, args: &[&str]) -> Answer {
        let mut all = vec!["run"];
        TINY.iter().for_each(|set| all.extend(["--set", set]));
        all.extend(args);
        self.call(&all)
    }

    pub(crate) fn refuses(&self, args: &[&str], expected: &[&str]) {
        let answer = self.call(args);
        assert_eq!(answer.code, 2, "{args:?}: {}{}", answer.out, answer.err);
        assert_eq!(answer.out, "", "{args:?}");
        for text in expected {
            assert!(answer.err.contains(text), "{args:?} should say {text:?}: {}", answer.err);
        }
        assert!(answer.err.starts_with("error: "), "{}", answer.err);
        assert_eq!(answer.err.trim_end().lines().count(), 1, "{}", answer.err);
        assert!(!self.path("runs").exists(), "{args:?} left a run folder");
    }
}

pub(crate) fn files(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
