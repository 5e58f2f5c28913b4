//! The checkpoint of a run that was stopped, from which it goes on for a round.

use std::fs;

use fedelity_experiment::{Checkpoints, Document, FrontError, Observer, Resources, Run, StopSign, Study};
use fedelity_record::{RoundRecord, RunFolder};

use crate::Read;
use crate::place::Place;

/// One client, which remembers something, and a server with a state.
const STUDY: &str = "rounds = 9\n[data]\nname = \"csv\"\ntrain = \"rows.csv\"\n[partition]\nclients = 1\n\
                     [clients]\nepochs = 1\nbatch = 4\n[model]\nname = \"logistic\"\n[method]\nname = \"scaffold\"\n";
const ROWS: &[u8] = b"a,b,label\n1,2,x\n2,3,y\n3,1,x\n4,4,y\n5,0,x\n6,2,y\n7,1,x\n8,5,y\n9,3,x\n1,8,y\n";

/// Magic, version and the identity of the run.
const IDENTITY: std::ops::Range<usize> = 6..38;

/// Stops a run after a round, and notes what could not be used.
#[derive(Default)]
struct Until {
    round: u64,
    sign: StopSign,
    notes: Vec<String>,
}

impl Observer for Until {
    fn round(&mut self, _: &Run<'_>, record: &RoundRecord) -> Result<(), FrontError> {
        if record.round >= self.round {
            self.sign.ask();
        }
        Ok(())
    }

    fn note(&mut self, note: &str) {
        self.notes.push(note.to_string());
    }

    fn stop(&self) -> StopSign {
        self.sign.clone()
    }
}

/// The files of a stopped run that it goes on from.
const FILES: [&str; 3] = ["rounds.jsonl", "checkpoint/round-2.state", "checkpoint/client-0-2.memory"];

/// A run that was stopped after two rounds.
pub struct StoppedRun {
    place: Place,
    study: Study,
    /// What it goes on from.
    pub files: [(&'static str, Vec<u8>); 3],
}

impl StoppedRun {
    pub fn new() -> Self {
        let place = Place::with(&[("rows.csv", ROWS)]);
        let document = Document::parse("study".to_string(), place.folder().to_path_buf(), STUDY);
        let study = Study::load_with(&document.expect("a configuration"), &Resources::default()).expect("a study");
        let mut stopped = Self { place, study, files: FILES.map(|name| (name, Vec::new())) };
        fs::create_dir(stopped.place.file("run")).expect("a temporary folder");
        stopped.go_on(2, Checkpoints::Clients).expect("a run");
        let read = |name: &str| fs::read(stopped.place.file("run").join(name)).expect("a file of a checkpoint");
        stopped.files = FILES.map(|name| (name, read(name)));
        stopped
    }

    /// Goes on until a round is done.
    fn go_on(&self, round: u64, checkpoints: Checkpoints) -> Result<(), String> {
        let folder = RunFolder::open(&self.place.file("run")).expect("a folder");
        let (study, method) = (&self.study, &self.study.settings.methods[0]);
        let run = Run { study, method, label: "scaffold", seed: 1, threads: 1, checkpoints, federated: false };
        let mut until = Until { round, ..Until::default() };
        run.execute(&folder, &mut until).map_err(|error| error.to_string())?;
        if until.notes.is_empty() { Ok(()) } else { Err(until.notes.join("; ")) }
    }
}

impl Default for StoppedRun {
    fn default() -> Self {
        Self::new()
    }
}

/// The checkpoint of a run after two rounds, of which one file varies. Identity and checksums are always right.
pub(crate) fn checkpoint(name: &'static str) -> Read {
    let stopped = StoppedRun::new();
    let identity = stopped.files[1].1[IDENTITY].to_vec();
    Box::new(move |bytes| {
        let place = &stopped.place;
        place.remove("run");
        stopped.files.iter().for_each(|(name, bytes)| place.write(&format!("run/{name}"), bytes));
        place.write(&format!("run/checkpoint/{name}"), &signed(bytes, &identity));
        stopped.go_on(3, Checkpoints::Off)
    })
}

/// The same file with the identity of this run and the right checksums, as far as it has frames.
fn signed(bytes: &[u8], identity: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Some(own) = bytes.get_mut(IDENTITY) {
        own.copy_from_slice(identity);
    }
    let mut at = IDENTITY.end;
    while let Some((length, rest)) = bytes.get(at..).and_then(|rest| rest.split_first_chunk::<8>()) {
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let Some(frame) = length.checked_add(4).and_then(|end| rest.get(4..end)) else { break };
        let sum = crc32c::crc32c(frame);
        bytes[at + 8..at + 12].copy_from_slice(&sum.to_le_bytes());
        at += 12 + length;
    }
    bytes
}
