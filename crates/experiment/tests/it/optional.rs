//! What a study can do without.

use fedelity_experiment::{Document, FrontError, Observer, Run, Study};
use fedelity_record::{RunFolder, Status, names};

/// Puts a folder where each run writes its features.
#[derive(Default)]
struct InTheWay {
    missing: Vec<String>,
}

impl Observer for InTheWay {
    fn start(&mut self, _: &Run<'_>, folder: &RunFolder, _: usize) -> Result<(), FrontError> {
        Ok(std::fs::create_dir_all(folder.file(names::FEATURES).join("full"))?)
    }

    fn note(&mut self, what: &str) {
        self.missing.push(what.to_string());
    }
}

#[test]
fn features_that_cannot_be_written_do_not_end_a_study() {
    let mut document = Document::default();
    for set in ["rounds=2", "seeds=[1,2,3]", "partition.clients=5", "clients.per-round=2", "clients.epochs=1"] {
        document.set(set).unwrap();
    }
    document.set("model.name=logistic").unwrap();
    let study = Study::load(&document).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let folder = study.folder(Some(&dir.path().join("out"))).unwrap();
    let mut observer = InTheWay::default();
    let results = study.run(&folder, 1, &mut observer).unwrap();
    assert_eq!(results.runs().filter(|run| run.summary.status == Status::Finished).count(), 3);
    assert_eq!(observer.missing.len(), 3);
    assert!(observer.missing.iter().all(|what| what.contains("features.safetensors: cannot write")));
}
