//! Evaluation of the global model on worker threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use fedelity_fl::observe::Portrait;
use fedelity_fl::{CHUNK, Evaluation, Samples, Trainer};

/// Scores weights on samples. Chunk boundaries are fixed and chunks are added in order, so the number of trainers
/// changes nothing.
pub fn evaluate(trainers: &mut [Trainer], params: &[f32], samples: Samples<'_>, classes: usize) -> Portrait {
    let chunks: Vec<&[u32]> = samples.indices.chunks(CHUNK).collect();
    let next = AtomicUsize::new(0);
    let work = |trainer: &mut Trainer| {
        let mut found = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(indices) = chunks.get(at) else {
                return found;
            };
            found.push((at, trainer.portrait(params, samples.at(indices), false)));
        }
    };
    let threads = trainers.len().min(chunks.len()).max(1);
    let (first, others) = trainers[..threads].split_at_mut(1);
    let mut found = thread::scope(|scope| {
        let start = |trainer| thread::Builder::new().spawn_scoped(scope, || work(trainer));
        // If no more threads can be started, the others do the work.
        let running: Vec<_> = others.iter_mut().map_while(|trainer| start(trainer).ok()).collect();
        let mut found = work(&mut first[0]);
        for thread in running {
            match thread.join() {
                Ok(part) => found.extend(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        found
    });
    found.sort_unstable_by_key(|&(at, _)| at);
    let mut all = Portrait { evaluation: Evaluation::new(classes), ..Portrait::default() };
    for (_, part) in &found {
        all.evaluation.merge(&part.evaluation);
        all.predictions.extend_from_slice(&part.predictions);
        all.margins.extend_from_slice(&part.margins);
    }
    all
}
