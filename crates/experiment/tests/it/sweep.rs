//! Sweeps within the process.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use fedelity_experiment::{FrontError, Job, JobEnd, JobState, Resources, Sweep, SweepObserver};
use fedelity_record::RoundRecord;

const SWEEP: &str = "seeds = [1, 2]\n[set]\nrounds = 2\n\"partition.clients\" = 5\n\"clients.epochs\" = 1\n\
                     \"clients.per-round\" = 2\n\"model.name\" = \"logistic\"\n[grid]\n\"method.name\" = [\"fedavg\", \"fedntd\"]\n";

#[derive(Default)]
struct Seen {
    rounds: Mutex<usize>,
    ends: Mutex<Vec<&'static str>>,
    stop_after: Option<usize>,
}

impl SweepObserver for Seen {
    fn round(&self, _: &Job, _: &RoundRecord, _: usize) {
        *self.rounds.lock().unwrap() += 1;
    }

    fn end(&self, _: &Job, end: &JobEnd) -> Result<(), FrontError> {
        self.ends.lock().unwrap().push(match end {
            JobEnd::Before(_) => "before",
            JobEnd::Now(_) => "now",
            JobEnd::Failed(_) => "failed",
            JobEnd::Interrupted => "interrupted",
        });
        Ok(())
    }

    fn stop(&self) -> bool {
        self.stop_after.is_some_and(|most| *self.rounds.lock().unwrap() >= most)
    }
}

fn sweep(dir: &Path, text: &str) -> Result<Sweep, String> {
    let file = dir.join("sweep.toml");
    fs::write(&file, text).unwrap();
    Sweep::read(&file, &dir.join("out"), |_| Ok(())).map_err(|error| error.to_string())
}

#[test]
fn a_sweep_resumes_where_it_stopped_and_repeats_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let resources = Resources::default();
    let sweep = sweep(dir.path(), SWEEP).unwrap();
    assert_eq!(sweep.jobs.len(), 4);
    let stopped = Seen { stop_after: Some(3), ..Seen::default() };
    sweep.run(1, &resources, &stopped).unwrap();
    assert_eq!(*stopped.ends.lock().unwrap(), ["now", "interrupted"]);
    assert_eq!(sweep.jobs.iter().filter(|job| sweep.state(job) == JobState::Done).count(), 1);
    let rest = Seen::default();
    sweep.run(2, &resources, &rest).unwrap();
    let mut ends = rest.ends.lock().unwrap().clone();
    ends.sort_unstable();
    assert_eq!(ends, ["before", "now", "now", "now"]);
    assert_eq!(*rest.rounds.lock().unwrap(), 6);
    // A run in a sweep equals a separate run of the same configuration.
    let folder = sweep.folder(&sweep.jobs[3]);
    let document = fedelity_experiment::Document::read(&folder.join("config.toml")).unwrap();
    let study = fedelity_experiment::Study::load(&document).unwrap();
    let own = study.folder(Some(&dir.path().join("own"))).unwrap();
    study.run(&own, 2, &mut ()).unwrap();
    let model = |folder: &Path| fs::read(folder.join("model.safetensors")).unwrap();
    assert_eq!(model(own.path()), model(&folder));
}

/// Data used by several runs are read once: the second run finds them even after the file is gone.
#[test]
fn data_are_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let table = dir.path().join("t.csv");
    let rows: String = (0..40).map(|i| format!("{},{}\n", i % 2, i)).collect();
    fs::write(&table, format!("label,x\n{rows}")).unwrap();
    let text = format!(
        "{SWEEP}[[list]]\n\"data.name\" = \"csv\"\n\"data.train\" = \"{}\"\n\"partition.kind\" = \"iid\"\n",
        table.display()
    );
    let sweep = sweep(dir.path(), &text).unwrap();
    struct Remover(std::path::PathBuf, Seen);
    impl SweepObserver for Remover {
        fn end(&self, job: &Job, end: &JobEnd) -> Result<(), FrontError> {
            let _ = fs::remove_file(&self.0);
            self.1.end(job, end)
        }
    }
    let seen = Remover(table, Seen::default());
    sweep.run(1, &Resources::default(), &seen).unwrap();
    assert_eq!(*seen.1.ends.lock().unwrap(), ["now"; 4]);
}

#[test]
fn every_run_is_checked_before_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |text: &str| sweep(dir.path(), text).err().unwrap();
    let text = refused("[grid]\n\"method.name\" = [\"fedavg\", \"fedntt\"]\n");
    assert!(text.contains("method.name=\"fedntt\"") && text.contains("did you mean 'fedntd'?"), "{text}");
    assert!(refused("[set]\nrundes = 3\n").contains("did you mean 'rounds'?"));
    assert!(refused("config = \"nowhere.toml\"\n").contains("no such file"));
    assert!(refused("sedes = [1]\n").contains("unknown key 'sedes', did you mean 'seeds'?"));
    assert!(!dir.path().join("out").exists());
}
