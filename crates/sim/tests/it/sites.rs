//! Clients with names and test samples of their own, measures of two classes, and the validation part.

use std::sync::Arc;

use fedelity_data::{Dataset, NaturalKeys, Partition};
use fedelity_fl::{Federation, Held, ServerData, Trainer};
use fedelity_record::TestedOn;
use fedelity_sim::{Experiment, Metrics, Observation, Simulation};

use crate::rounds::{PlainAverage, data, experiment, model, partition};

/// The clients are sites, and test sample `i` is of site `i % 13`; nobody trains with samples of the last one.
fn sites() -> (Dataset, Partition) {
    let (mut data, mut partition) = (data(), partition());
    let names: Vec<String> = (0..13).map(|site| format!("site {site}")).collect();
    let mut of = vec![12; data.train.len()];
    for (client, samples) in (0..).zip(&partition.clients) {
        samples.iter().for_each(|&i| of[i as usize] = client);
    }
    data.train.keys = Some(NaturalKeys { of, names: names.clone() });
    data.test.keys =
        Some(NaturalKeys { of: (0..data.test.len() as u32).map(|i| i % 13).collect(), names: names.clone() });
    partition.names = names[..12].to_vec();
    (data, partition)
}

fn natural(metrics: Metrics, per_round: usize) -> Simulation {
    let (data, partition) = sites();
    let observation = Observation { metrics, ..Observation::default() };
    let (data, partition) = (Arc::new(data), Arc::new(partition));
    Simulation::new(Experiment { data, partition, per_round, observation, ..experiment(PlainAverage) }).unwrap()
}

/// With one client per round, the new global model is that client's model, so they are equally good for its site.
#[test]
fn a_site_is_tested_on_its_own_samples() {
    let mut simulation = natural(Metrics::All, 1);
    let test_labels = simulation.experiment().data.test.labels.clone();
    for number in 1..=4 {
        let before = simulation.evaluate();
        let round = simulation.step().unwrap();
        let local = round.local.unwrap();
        let (client, all) = (&local.clients[0], round.client_accuracy.unwrap());
        let (at, own) = (client.client as usize, client.own.unwrap());
        assert_eq!((own.samples, all.len()), ((at..300).step_by(13).count() as u64, 12));
        assert_eq!(Some(own.after), all[at]);
        assert!(own.before.is_some());
        // The mean over all sites, the one without a client included, is the accuracy on all test samples.
        let report = simulation.clients().unwrap();
        assert_eq!((report.round, report.tested_on, report.positive), (number, TestedOn::Own, None));
        assert_eq!(report.clients.len(), 12);
        let found = &report.clients[at];
        assert_eq!((found.name.as_str(), found.samples), (format!("site {at}").as_str(), client.samples));
        let (global, own_model) = (found.global.as_ref().unwrap(), found.own.as_ref().unwrap());
        assert_eq!((own_model.round, &own_model.scores), (number, global));
        assert_eq!(global.accuracy.unwrap().value, own.after);
        let classes = |class: u16| (at..300).step_by(13).filter(|&i| test_labels[i] == class).count() as u64;
        assert_eq!(global.class_samples, (0..4).map(classes).collect::<Vec<_>>());
        assert_eq!(found.held.iter().sum::<u64>(), found.samples);
        // What the client's model does on the common samples follows from the record.
        let after: Vec<u64> = (0..4)
            .map(|class| local.class_correct_before[class] + client.learnt[class] - client.forgot[class])
            .collect();
        assert_eq!(after, report.common.unwrap().class_correct);
        assert_eq!(local.class_correct_before, before.correct);
        let scores = round.scores.unwrap();
        assert_eq!((scores.samples, scores.accuracy.unwrap().value), (300, round.accuracy.unwrap()));
        let classes: Vec<f64> = round.class_accuracy.unwrap().into_iter().flatten().collect();
        assert!((scores.balanced_accuracy.unwrap() - classes.iter().sum::<f64>() / 4.0).abs() < 1e-12);
        assert!(scores.macro_f1.is_some() && scores.auc.is_none() && scores.class_samples.is_empty());
    }
}

/// With the standard metrics, a local model is tested on some samples: its own among the common ones, and a few more.
#[test]
fn testing_on_own_samples_stays_within_its_share() {
    let mut simulation = natural(Metrics::Standard, 3);
    let round = simulation.step().unwrap();
    let local = round.local.unwrap();
    assert_eq!(local.samples, 200);
    for client in &local.clients {
        let own = client.own.unwrap();
        let all = (client.client as usize..300).step_by(13).count() as u64;
        // 3 % of the passes of two epochs, each of which costs three.
        let further = (0.03 * 3.0 * 2.0 * client.samples as f64) as u64;
        assert!(own.samples <= all && own.samples > 0, "{client:?}");
        // Each class among the further ones is there at least once.
        assert!(own.samples <= 200 && own.samples <= all.min(all * 2 / 3 + 6 + further.max(4)), "{client:?}");
    }
    let mut plain = Simulation::new(Experiment { per_round: 3, ..experiment(PlainAverage) }).unwrap();
    let common = plain.step().unwrap();
    assert!(
        common.client_accuracy.is_none() && common.local.unwrap().clients.iter().all(|client| client.own.is_none())
    );
    let report = plain.clients().unwrap();
    assert_eq!((report.tested_on, report.clients[0].name.as_str()), (TestedOn::Common, ""));
    assert!(report.clients.iter().all(|client| client.global.is_none() && client.global_in.is_some()));
    assert_eq!(report.clients.iter().filter(|client| client.own.is_some()).count(), 3);
    let mut fast = natural(Metrics::Fast, 3);
    assert!(fast.step().unwrap().client_accuracy.is_some());
    let report = fast.clients().unwrap();
    assert!(report.clients.iter().all(|client| client.own.is_none() && client.global.is_some()));
}

#[test]
fn two_classes_have_more_measures() {
    let mut data = data();
    data.classes.truncate(2);
    data.train.labels.iter_mut().chain(&mut data.test.labels).for_each(|label| *label /= 2);
    let of = |positive: usize| {
        let base = experiment(PlainAverage);
        let observation = Observation { metrics: Metrics::All, positive: Some(positive), ..Observation::default() };
        let federation = Federation { model: model(6, 2), ..base.federation };
        let data = Arc::new(data.clone());
        let mut simulation =
            Simulation::new(Experiment { data, federation, observation, per_round: 1, ..base }).unwrap();
        let record = simulation.step().unwrap();
        (
            record.scores.unwrap(),
            simulation.clients().unwrap(),
            record.clients[0] as usize,
            record.class_accuracy.unwrap(),
        )
    };
    let (second, report, client, classes) = of(1);
    assert_eq!(
        (second.sensitivity.unwrap().value, second.specificity.unwrap().value),
        (classes[1].unwrap(), classes[0].unwrap())
    );
    assert_eq!(report.positive, Some(1));
    // The client's own model is the global one, and tested on the same samples.
    assert_eq!(report.clients[client].own.as_ref().unwrap().scores, report.common.clone().unwrap());
    assert_eq!(report.common.unwrap().auc, second.auc);
    let (first, ..) = of(0);
    assert_eq!((first.sensitivity, first.specificity), (second.specificity, second.sensitivity));
    assert!((first.auc.unwrap().value - second.auc.unwrap().value).abs() < 1e-12);
}

#[test]
fn the_validation_part_is_tested_when_the_test_samples_are() {
    let data = Arc::new(data());
    let validation = Some(Held::new(Arc::clone(&data), (450..500).collect()));
    let base = experiment(PlainAverage);
    let server_data = ServerData { validation: validation.clone(), ..ServerData::default() };
    let federation = Federation { server_data, ..base.federation };
    let mut simulation = Simulation::new(Experiment { federation, data, evaluate_every: 2, ..base }).unwrap();
    for number in 1..=4 {
        let round = simulation.step().unwrap();
        assert_eq!(round.validation.is_some(), number % 2 == 0);
        let Some(found) = round.validation else { continue };
        let mut trainer = Trainer::new(simulation.experiment().federation.model.clone());
        let expected = trainer.portrait(simulation.global(), validation.as_ref().unwrap().samples(), false).evaluation;
        assert_eq!((found.accuracy, found.loss), (expected.accuracy(), expected.loss()));
    }
}
