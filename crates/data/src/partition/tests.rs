//! Tests over all kinds of partitions.

use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::dataset::{Normalisation, Shape, Split};

fn dirichlet(alpha: f64) -> Kind {
    Kind::Dirichlet { alpha, min_size: 10 }
}

fn names() -> Vec<&'static str> {
    <Kind as fedelity_keys::Selected>::SELECTOR.words()
}

fn cifar_like() -> Vec<u16> {
    // Classes are spread over the set, as in the official order.
    (0..50_000u32).map(|i| (i * 7 % 10) as u16).collect()
}

/// A data set of samples that have only labels.
pub(super) fn labelled(labels: &[u16], classes: usize) -> Dataset {
    Dataset {
        name: "toy".to_string(),
        classes: vec![String::new(); classes],
        shape: Shape::Text,
        train: Split { labels: labels.to_vec(), ..Split::default() },
        test: Split::default(),
        normalisation: Normalisation::default(),
        table: None,
    }
}

fn try_make(labels: &[u16], classes: usize, kind: Kind, clients: usize, seed: u64) -> Result<Partition, DataError> {
    partition(&labelled(labels, classes), &vec![false; labels.len()], &kind, Some(clients), seed)
}

fn make(labels: &[u16], classes: usize, kind: Kind, clients: usize, seed: u64) -> Partition {
    try_make(labels, classes, kind, clients, seed).unwrap()
}

/// Disjoint, complete, no client empty.
fn assert_whole(clients: &[Vec<u32>], samples: usize) {
    let mut seen = vec![false; samples];
    for client in clients {
        assert!(!client.is_empty());
        for &index in client {
            assert!(!seen[index as usize], "sample {index} twice");
            seen[index as usize] = true;
        }
    }
    assert!(seen.into_iter().all(|s| s), "a sample is left out");
}

fn smallest(made: &Partition) -> usize {
    made.clients.iter().map(Vec::len).min().unwrap()
}

fn largest(made: &Partition) -> usize {
    made.clients.iter().map(Vec::len).max().unwrap()
}

fn classes_of(client: &[u32], labels: &[u16]) -> usize {
    let mut held: Vec<u16> = client.iter().map(|&i| labels[i as usize]).collect();
    held.sort_unstable();
    held.dedup();
    held.len()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_kind_gives_a_partition(
        labels in prop::collection::vec(0u16..7, 1..300),
        share in 0.0f64..1.0,
        exponent in -3.0f64..3.0,
        min_size in 0usize..30,
        max_draws in 1u32..40,
        held in 1usize..8,
        seed: u64,
    ) {
        let n = labels.len();
        let clients = ((n as f64 * share * share) as usize).clamp(1, n);
        let alpha = 10f64.powf(exponent);
        let mut present = labels.clone();
        present.sort_unstable();
        present.dedup();
        let least = present.len().div_ceil(clients);
        let kinds = [
            Kind::Iid,
            Kind::Dirichlet { alpha, min_size },
            Kind::DirichletEqual { alpha },
            Kind::LabelsPerClient { labels: held.clamp(least, present.len()) },
        ];
        for kind in kinds {
            let made = make(&labels, 7, kind.clone(), clients, seed);
            assert_whole(&made.clients, n);
            prop_assert_eq!(&made, &make(&labels, 7, kind.clone(), clients, seed));
            match kind {
                Kind::Dirichlet { .. } => {
                    prop_assert!(smallest(&made) >= min_size.min(n / clients));
                    let few = dirichlet::make(&labels, clients, alpha, min_size, max_draws, &mut Stream::new(seed));
                    assert_whole(&few.clients, n);
                    prop_assert!(few.draws <= max_draws && made.draws <= MAX_DRAWS);
                }
                Kind::LabelsPerClient { labels: held } => {
                    for client in &made.clients {
                        prop_assert!(classes_of(client, &labels) <= held);
                    }
                }
                _ => prop_assert!(largest(&made) - smallest(&made) <= 1),
            }
        }
    }

    #[test]
    fn natural_keys_give_a_partition(
        of in prop::collection::vec(0u32..12, 1..200),
        share in 0.0f64..1.0,
        seed: u64,
    ) {
        let n = of.len();
        let mut present = of.clone();
        present.sort_unstable();
        present.dedup();
        let clients = 1 + (share * (present.len() - 1) as f64) as usize;
        let mut dataset = labelled(&vec![0; n], 1);
        let names = (0..12).map(|key| format!("k{key}")).collect();
        dataset.train.keys = Some(crate::dataset::NaturalKeys { of: of.clone(), names });
        for clients in [None, Some(clients)] {
            let made = partition(&dataset, &vec![false; n], &Kind::Natural, clients, seed).unwrap();
            assert_whole(&made.clients, n);
            prop_assert_eq!(made.clients.len(), clients.unwrap_or(present.len()));
            // No key is split.
            let has = |client: &[u32], key: u32| client.iter().any(|&i| of[i as usize] == key);
            let owners = |key: u32| made.clients.iter().filter(|client| has(client, key)).count();
            prop_assert!(present.iter().all(|&key| owners(key) == 1));
        }
    }

    #[test]
    fn a_partition_without_some_samples_comes_back_from_its_file(
        labels in prop::collection::vec(0u16..5, 20..120),
        withheld in prop::collection::vec(any::<bool>(), 120),
        seed: u64,
    ) {
        let n = labels.len();
        let withheld: Vec<bool> = (0..n).map(|i| withheld[i] && i % 2 == 0).collect();
        let kept = withheld.iter().filter(|gone| !**gone).count();
        let made = partition(&labelled(&labels, 5), &withheld, &Kind::Iid, Some(4), seed).unwrap();
        let mut held: Vec<u32> = made.clients.concat();
        held.sort_unstable();
        prop_assert!(held.iter().all(|&i| !withheld[i as usize]) && held.len() == kept);
        held.dedup();
        prop_assert_eq!(held.len(), kept);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p.json");
        made.write(&path, false).unwrap();
        prop_assert_eq!(Partition::read_for(&path, &labels).unwrap().clients, made.clients);
    }

    #[test]
    fn shards_give_a_partition(
        clients in 1usize..20,
        classes in 1usize..8,
        factor in 1usize..4,
        extra in prop::collection::vec(0u16..8, 0..60),
        seed: u64,
    ) {
        // The fewest shards that divide evenly, and at least one sample for each of them.
        let step = (1..=classes).find(|s| (s * clients).is_multiple_of(classes)).unwrap();
        let per_client = step * factor;
        let per_class = per_client * clients / classes;
        let mut labels: Vec<u16> = (0..classes as u16)
            .flat_map(|class| std::iter::repeat_n(class, per_class))
            .collect();
        labels.extend(extra.into_iter().map(|l| l % classes as u16));
        let made = make(&labels, classes, Kind::Shards { shards: per_client }, clients, seed);
        assert_whole(&made.clients, labels.len());
        for client in &made.clients {
            prop_assert!(classes_of(client, &labels) <= per_client);
        }
    }
}

fn each_kind() -> [Kind; 5] {
    [
        Kind::Iid,
        dirichlet(0.1),
        Kind::DirichletEqual { alpha: 0.1 },
        Kind::Shards { shards: 2 },
        Kind::LabelsPerClient { labels: 2 },
    ]
}

#[test]
fn seeds_decide() {
    let labels = cifar_like();
    for kind in each_kind() {
        let made = make(&labels, 10, kind.clone(), 20, 7);
        assert_whole(&made.clients, labels.len());
        assert_eq!(made, make(&labels, 10, kind.clone(), 20, 7));
        let other = make(&labels, 10, kind.clone(), 20, 8);
        assert_ne!(made.clients, other.clients, "{kind:?}");
        assert!(names().contains(&kind.name()));
    }
}

/// Changing these values changes the partitions for the seeds of published runs.
#[test]
fn partitions_are_fixed() {
    let labels: Vec<u16> = (0..600).map(|i| (i * i % 10) as u16).collect();
    let found: Vec<String> =
        [Kind::Iid, dirichlet(0.3), Kind::DirichletEqual { alpha: 0.3 }, Kind::LabelsPerClient { labels: 2 }]
            .into_iter()
            .map(|kind| {
                let made = make(&labels, 10, kind, 12, 1);
                let flat: Vec<u16> = made.clients.iter().flatten().map(|&i| i as u16).collect();
                labels_fingerprint(&flat)[..16].to_string()
            })
            .collect();
    assert_eq!(found, ["6ee03935bed65a32", "aea80ab4d2748895", "ad172bb81f99a0be", "7daa2d6df086d2ef"]);
}

/// Mean classes per client, and mean smallest and largest client, over seeds.
fn statistics(kind: &Kind, clients: usize) -> (f64, f64, f64, f64) {
    let labels = cifar_like();
    let (mut classes, mut small, mut large, mut std) = (0.0, 0.0, 0.0, 0.0);
    const SEEDS: u64 = 100;
    for seed in 0..SEEDS {
        let made = make(&labels, 10, kind.clone(), clients, seed);
        let skew = Skew::of(&made.clients, &labels, 10).unwrap();
        classes += skew.mean_classes;
        small += skew.sizes.min as f64;
        large += skew.sizes.max as f64;
        std += skew.sizes.std;
    }
    let n = SEEDS as f64;
    (classes / n, small / n, large / n, std / n)
}

/// Means over 400 draws of the published procedure in numpy: mean classes per client, smallest
/// and largest client, standard deviation of sizes.
///
/// ```python
/// while True:
///     M = np.zeros((N, 10), int)
///     for k in range(10):
///         p = rng.dirichlet(np.repeat(alpha, N)) * (M.sum(1) < 50000 / N)
///         c = (np.cumsum(p / p.sum()) * 5000).astype(int)[:-1]
///         M[:, k] = np.diff(np.concatenate([[0], c, [5000]]))
///     if M.sum(1).min() >= 10: break
/// ```
#[test]
fn dirichlet_statistics() {
    for (alpha, clients, expected) in [
        (0.1, 10, (5.55, 1144.0, 8436.0, 2226.0)),
        (0.5, 10, (8.78, 2687.0, 6957.0, 1234.0)),
        (10.0, 10, (9.86, 4351.0, 5547.0, 359.0)),
        (0.1, 100, (4.20, 15.6, 2084.0, 396.0)),
        (0.3, 100, (7.03, 78.0, 1288.0, 216.0)),
    ] {
        let found = statistics(&dirichlet(alpha), clients);
        println!("{alpha} {clients}: {found:.1?}, expected {expected:?}");
        assert!((found.0 / expected.0 - 1.0).abs() < 0.03, "{found:?}");
        assert!((found.1 / expected.1 - 1.0).abs() < 0.2, "{found:?}");
        assert!((found.2 / expected.2 - 1.0).abs() < 0.1, "{found:?}");
        assert!((found.3 / expected.3 - 1.0).abs() < 0.1, "{found:?}");
    }
}

#[test]
fn hard_dirichlet_terminates_and_is_repaired() {
    let labels = cifar_like();
    let start = Instant::now();
    let made = make(&labels, 10, dirichlet(0.05), 100, 1);
    println!("{:?}: {} draws, {:?}", start.elapsed(), made.draws, made.notes);
    assert_whole(&made.clients, labels.len());
    assert!(smallest(&made) >= 10);
    assert_eq!(made.draws == MAX_DRAWS, !made.notes.is_empty());
    let skew = Skew::of(&made.clients, &labels, 10).unwrap();
    assert!((2.0..3.5).contains(&skew.mean_classes), "{}", skew.mean_classes);
}

#[test]
fn many_clients_are_fast() {
    let labels: Vec<u16> = (0..60_000u32).map(|i| (i % 10) as u16).collect();
    for alpha in [0.001, 0.1, 100.0] {
        let kinds = [
            Kind::Iid,
            dirichlet(alpha),
            Kind::DirichletEqual { alpha },
            Kind::Shards { shards: 2 },
            Kind::LabelsPerClient { labels: 2 },
        ];
        for kind in kinds {
            let start = Instant::now();
            let made = make(&labels, 10, kind.clone(), 10_000, 3);
            println!("{kind:?}: {:?}, {} draws, {:?}", start.elapsed(), made.draws, made.notes);
            assert_whole(&made.clients, labels.len());
            // Generous, for slow machines.
            assert!(start.elapsed().as_secs() < 10, "{kind:?}");
        }
    }
}

#[test]
fn lowered_minimum_is_noted() {
    let made = make(&[0; 25], 1, dirichlet(1.0), 5, 0);
    assert_eq!((smallest(&made), largest(&made)), (5, 5));
    assert!(made.notes[0].contains("lowered from 10 to 5"), "{:?}", made.notes);
}

#[test]
fn equal_sizes_are_equal() {
    let labels = cifar_like();
    let made = make(&labels, 10, Kind::DirichletEqual { alpha: 0.1 }, 20, 0);
    assert!(made.clients.iter().all(|client| client.len() == 2_500));
    let skew = Skew::of(&made.clients, &labels, 10).unwrap();
    assert!(skew.mean_classes < 8.0, "{}", skew.mean_classes);
    assert!(made.draws >= 2);
}

#[test]
fn shards_of_cifar() {
    let labels = cifar_like();
    let made = make(&labels, 10, Kind::Shards { shards: 2 }, 100, 0);
    assert!(made.clients.iter().all(|client| client.len() == 500));
    assert!(made.clients.iter().all(|client| classes_of(client, &labels) <= 2));
}

#[test]
fn every_class_has_an_owner() {
    // 100 classes, 10 clients with 10 labels each: only an exact cover works.
    let labels: Vec<u16> = (0..5_000).map(|i| (i % 100) as u16).collect();
    let made = make(&labels, 100, Kind::LabelsPerClient { labels: 10 }, 10, 0);
    assert_whole(&made.clients, labels.len());
    assert!(made.clients.iter().all(|client| classes_of(client, &labels) == 10));
    assert!(made.notes[0].contains("had no client"), "{:?}", made.notes);
    // One class with one sample and three clients.
    let labels = [0, 1, 1, 1, 1, 1, 1, 1, 1];
    let made = make(&labels, 2, Kind::LabelsPerClient { labels: 1 }, 6, 0);
    assert_whole(&made.clients, labels.len());
    assert!(made.notes[0].contains("had no sample"), "{:?}", made.notes);
}

#[test]
fn classes_without_samples_do_no_harm() {
    let labels: Vec<u16> = (0..300).map(|i| 3 + 50 * (i % 2) as u16).collect();
    for kind in [Kind::Iid, dirichlet(0.5), Kind::DirichletEqual { alpha: 0.5 }, Kind::LabelsPerClient { labels: 1 }] {
        assert_whole(&make(&labels, 65_536, kind, 7, 0).clients, 300);
    }
}

#[test]
fn bad_parameters_are_named() {
    let labels: Vec<u16> = (0..40).map(|i| i % 4).collect();
    let refused = |kind: Kind, clients: usize| try_make(&labels, 4, kind, clients, 0).unwrap_err().to_string();
    let has = |text: String, parts: &[&str]| {
        for part in parts {
            assert!(text.contains(part), "{text}: {part}");
        }
    };
    for alpha in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        has(refused(dirichlet(alpha), 4), &["alpha = ", "above 0"]);
        has(refused(Kind::DirichletEqual { alpha }, 4), &["alpha = "]);
    }
    for kind in each_kind() {
        has(refused(kind.clone(), 0), &["clients = 0", "1 to 40"]);
        has(refused(kind.clone(), 41), &["clients = 41", "1 to 40"]);
        has(refused(kind, usize::MAX), &["clients", "1 to 40"]);
    }
    for labels in [0, 5, usize::MAX] {
        has(refused(Kind::LabelsPerClient { labels }, 4), &["labels = ", "1 to 4"]);
    }
    has(refused(Kind::LabelsPerClient { labels: 1 }, 3), &["labels = 1", "at least 2"]);
    for per_client in [0, 11, usize::MAX] {
        has(refused(Kind::Shards { shards: per_client }, 4), &["shards", "1 to 10"]);
    }
    has(refused(Kind::Shards { shards: 1 }, 6), &["shards = 1", "multiple of 2"]);
    let error = try_make(&[0, 0, 0, 1], 2, Kind::Shards { shards: 1 }, 4, 0);
    has(error.unwrap_err().to_string(), &["class 1 has 1 samples"]);
    has(try_make(&[0, 9], 9, Kind::Iid, 1, 0).unwrap_err().to_string(), &["label 9 of sample 1", "below 9"]);
    has(try_make(&[], 1, Kind::Iid, 1, 0).unwrap_err().to_string(), &["clients = 1"]);
    for classes in [0, 65_537] {
        has(try_make(&[0], classes, Kind::Iid, 1, 0).unwrap_err().to_string(), &["classes = ", "1 to 65536"]);
    }
}

#[test]
fn kinds_are_read_from_configuration_keys() {
    for (name, kind) in names().into_iter().zip(each_kind().into_iter().chain([Kind::Natural])) {
        assert_eq!(kind.name(), name);
        assert_eq!(read_kind(&format!("kind = \"{name}\"")).unwrap(), kind);
    }
    let given = read_kind("kind = \"dirichlet\"\nalpha = 0.5\nmin-size = 3").unwrap();
    assert_eq!(given, Kind::Dirichlet { alpha: 0.5, min_size: 3 });
    for wrong in ["kind = \"other\"", "kind = \"shards\"\nalpha = 1", "kind = \"iid\"\nalpha = 1"] {
        assert!(read_kind(wrong).is_err(), "{wrong}");
    }
}

#[fedelity_keys::keys]
struct Section {
    #[key(flatten)]
    kind: Kind,
}

fn read_kind(text: &str) -> Result<Kind, fedelity_keys::KeyError> {
    let table: fedelity_keys::toml::Table = text.parse().unwrap();
    Ok(fedelity_keys::read::<Section>(&table, "partition", &mut ())?.0.kind)
}

#[test]
fn withheld_samples_are_held_by_no_client() {
    let labels: Vec<u16> = (0..60).map(|i| i % 3).collect();
    let withheld: Vec<bool> = (0..60).map(|i| i % 4 == 0).collect();
    let dataset = labelled(&labels, 3);
    for kind in [Kind::Iid, dirichlet(1.0), Kind::LabelsPerClient { labels: 2 }] {
        let made = partition(&dataset, &withheld, &kind, Some(4), 1).unwrap();
        let mut held = made.clients.concat();
        held.sort_unstable();
        assert_eq!(held, (0..60).filter(|i| i % 4 != 0).collect::<Vec<u32>>());
        assert_eq!((made.samples, made.given()), (60, 45));
    }
    let error = partition(&dataset, &[true; 60], &Kind::Iid, Some(4), 1).unwrap_err();
    assert!(matches!(error, DataError::NothingLeft { samples: 60 }), "{error}");
    let mut whole = partition(&dataset, &[false; 60], &Kind::Iid, Some(4), 1).unwrap();
    assert_eq!(whole.withhold(&withheld).unwrap(), 15);
    assert!(whole.clients.iter().flatten().all(|&i| !withheld[i as usize]));
    assert!(matches!(whole.withhold(&[true; 60]), Err(DataError::NothingKept { client: 0 })));
}
