//! The methods of the registry.

use anyhow::Result;
use fedelity_experiment::Trial;
use fedelity_methods::registry::{self, Entry, Identity};

use super::super::methods::{CLASSES, INPUT, MODEL, at_zero, defaults, in_words, models, sends, traffic};
use super::markdown::{Markdown, code, plain};
use crate::engine::resources;

/// Every method: equation, paper, when it helps, what it needs, what it costs and what leaves the client.
pub(super) fn page() -> Result<Markdown> {
    let mut page = Markdown::new("Every method");
    page.paragraph(
        "What each method computes, who published it, when it helps according to published measurements, and what it \
         costs. The symbols and every deviation from the papers are in [Formulas](../formulas.md); [Choose a \
         method](../choose-method.md) has measurements of all methods with one program. `fedelity methods NAME` prints \
         the same.",
    );
    page.paragraph(&format!(
        "Traffic counts numbers of four bytes, for one client in one round, with default keys on {} for 28x28 grey \
         images. An extra forward pass is one through a teacher. With the teacher cache, which is on by default, a \
         sample passes through a teacher once per round; with augmentation, where every view differs, once per epoch.",
        code(MODEL)
    ));
    let trial = Trial::new(MODEL, INPUT, CLASSES, &resources()?.engine)?;
    for entry in registry::entries() {
        describe(&mut page, entry, &trial)?;
    }
    Ok(page)
}

fn describe(page: &mut Markdown, entry: &Entry, trial: &Trial) -> Result<()> {
    let built = defaults(entry)?;
    let (needs, travel) = (built.method.needs(), trial.count(built.method)?);
    page.section(&code(entry.id));
    page.paragraph(&plain(entry.summary));
    page.verbatim(entry.equation.lines());
    let keeps = match travel.memory {
        0 => "nothing".to_string(),
        numbers => format!("{} times the model's weights", models(numbers, travel.weights)),
    };
    page.list([
        ("Published", plain(entry.reference)),
        ("When it helps", plain(entry.helps)),
        ("Needs", plain(&in_words(&needs))),
        ("Leaves the client", plain(&sends(&travel))),
        ("Stays on the client between rounds", keeps),
        ("Traffic", plain(&traffic(&travel, &needs))),
        ("Is FedAvg", is_fedavg(entry)),
    ]);
    let keys = entry.schema.keys.iter().map(|key| {
        let symbol = if ["", key.name].contains(&key.symbol) { String::new() } else { format!(" ({})", key.symbol) };
        let mut facts = vec![plain(key.summary()), format!("Expected: {}.", plain(&key.expected()))];
        facts
            .extend(at_zero(entry, key).filter(|text| !text.is_empty()).map(|text| format!("At 0: {}.", plain(&text))));
        [
            format!("{}{}", code(key.name), plain(&symbol)),
            key.default.map_or(String::new(), code),
            plain(key.paper),
            facts.join(" "),
        ]
    });
    page.table(["key", "default", "paper", "what it is"], keys);
    Ok(())
}

fn is_fedavg(entry: &Entry) -> String {
    match entry.identity {
        Identity::Always => "always".to_string(),
        Identity::KeysAtZero => {
            let keys: Vec<String> = entry.coefficients().iter().map(|key| code(&format!("{key} = 0"))).collect();
            format!("with {}", keys.join(" and "))
        }
        Identity::FirstRound => "in the first round".to_string(),
        Identity::Unknown => "not known".to_string(),
        Identity::EqualSteps => "when all clients of a round take the same number of steps".to_string(),
    }
}
