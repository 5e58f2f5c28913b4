use std::thread;
use std::time::Instant;

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn join(dir: &Path, patience: Duration) -> Claims {
    Claims::join(&dir.join("claims"), "", patience).unwrap()
}

fn mine(claims: &Claims, key: &str) -> Claim {
    match claims.claim(key).unwrap() {
        Taking::Mine(claim) => claim,
        other => panic!("{key}: {other:?}"),
    }
}

fn is_held(claims: &Claims, key: &str) -> bool {
    matches!(claims.claim(key).unwrap(), Taking::Held(_))
}

/// Two that share a process are distinct workers, which both live.
#[test]
fn one_holder_at_a_time_and_nothing_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (join(dir.path(), LONG), join(dir.path(), LONG));
    let claim = mine(&a, "x");
    assert!(claim.holds() && claim.number() == 1 && is_held(&a, "x") && is_held(&b, "x"));
    // Given back, it goes on with the next number.
    drop(claim);
    assert!(is_held(&b, "x"), "it has not looked since");
    b.look(LONG).unwrap();
    let claim = mine(&b, "x");
    assert_eq!((claim.number(), claim.taken_from()), (3, None));
    a.look(LONG).unwrap();
    assert_eq!(a.state("x"), ClaimState::Held(b.me().holder.clone()));
    claim.finish();
    a.look(LONG).unwrap();
    assert_eq!(a.state("x"), ClaimState::Open);
    let claim = mine(&a, "y");
    claim.fail("no\nroom\u{1b}");
    b.look(LONG).unwrap();
    assert!(matches!(b.claim("y").unwrap(), Taking::Failed(_, reason) if reason == "no room "));
    // Who comes later tries again.
    let c = join(dir.path(), LONG);
    mine(&c, "y").finish();
    assert_eq!(c.others().len(), 2);
    drop((a, b, c));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// A worker of another system: it is dead once it has been silent for as long as it said.
#[test]
fn a_silent_worker_is_taken_over_and_notices() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b, c) = (join(dir.path(), LONG), join(dir.path(), LONG), join(dir.path(), LONG));
    let foreign = |beat: u64| {
        let text = Worker { patience: Duration::from_millis(500), ..a.me().clone() }.lines(beat);
        let text = text.replace("place: ", "place: other ");
        fs::write(a.shared.worker(&a.me().name), text).unwrap();
    };
    foreign(0);
    let claim = mine(&a, "x");
    b.look(LONG).unwrap();
    assert!(is_held(&b, "x"));
    for beat in 1..20 {
        thread::sleep(Duration::from_millis(50));
        foreign(beat);
        b.look(LONG).unwrap();
        assert!(is_held(&b, "x"), "it lives");
    }
    // One long sleep of the observer proves nothing.
    thread::sleep(Duration::from_millis(600));
    b.look(Duration::from_millis(100)).unwrap();
    assert!(is_held(&b, "x") && claim.holds());
    thread::sleep(Duration::from_millis(600));
    b.look(LONG).unwrap();
    c.look(LONG).unwrap();
    let over = mine(&b, "x");
    assert!(over.taken_from().unwrap().process == a.me().holder.process && over.number() == 2 && over.holds());
    assert!(!claim.holds(), "the first holder is told");
    assert!(is_held(&c, "x"));
    drop(claim);
    assert!(over.holds(), "what the first one gives back is not the second one's");
    over.finish();
    // It comes back to life.
    b.look(LONG).unwrap();
    assert!(!a.shared.worker(&a.me().name).exists(), "a dead worker that holds nothing is removed");
    a.beat().unwrap();
    b.look(LONG).unwrap();
    assert_eq!(b.others().len(), 2);
    // Even after everybody else has left, with the folder.
    fs::remove_file(a.shared.worker(&a.me().name)).unwrap();
    let path = a.shared.path.clone();
    drop((b, c));
    assert!(!path.exists());
    a.beat().unwrap();
    a.look(LONG).unwrap();
    assert_eq!(a.state("x"), ClaimState::Open);
}

#[test]
fn a_claim_whose_writer_died_before_it_wrote_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let a = join(dir.path(), Duration::from_millis(100));
    fs::write(a.shared.file("x", 1), "").unwrap();
    fs::write(a.shared.file("y", 1), "state: held\nworker: nobody\n").unwrap();
    fs::write(a.shared.path.join("junk.claim"), "").unwrap();
    fs::write(a.shared.path.join("z.0.claim"), "").unwrap();
    a.look(LONG).unwrap();
    assert!(is_held(&a, "x"));
    assert_eq!(mine(&a, "y").number(), 2, "its worker is unknown");
    mine(&a, "z").finish();
    thread::sleep(Duration::from_millis(150));
    a.look(LONG).unwrap();
    assert_eq!(mine(&a, "x").number(), 2);
}

/// Many threads, each a worker, take over from workers that are gone, all at once: one wins every time.
#[test]
fn of_many_that_take_over_one_wins() {
    const KEYS: usize = 60;
    let dir = tempfile::tempdir().unwrap();
    let first = join(dir.path(), LONG);
    let held: Vec<Claim> = (0..KEYS).map(|key| mine(&first, &key.to_string())).collect();
    fs::remove_file(first.shared.worker(&first.me().name)).unwrap();
    let wins: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let gate = std::sync::Barrier::new(6);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let claims = join(dir.path(), LONG);
                gate.wait();
                let mut mine = Vec::new();
                for (key, wins) in wins.iter().enumerate() {
                    if let Taking::Mine(claim) = claims.claim(&key.to_string()).unwrap() {
                        wins.fetch_add(1, Ordering::SeqCst);
                        mine.push(claim);
                    }
                }
                assert!(mine.iter().all(Claim::holds));
                gate.wait();
                mine.iter().for_each(Claim::finish);
            });
        }
    });
    assert!(wins.iter().all(|wins| wins.load(Ordering::SeqCst) == 1), "{wins:?}");
    assert!(held.iter().all(|claim| !claim.holds()));
}

#[test]
fn a_list_for_those_who_only_look() {
    let dir = tempfile::tempdir().unwrap();
    let claims = Claims::join(&dir.path().join("claims"), "shard 1/2", LONG).unwrap();
    let _claim = mine(&claims, "b");
    fs::write(claims.shared.file("a", 4), "state: held\nworker: gone\nhost: lab-3\nprocess: 7\n").unwrap();
    drop(mine(&claims, "c"));
    let (workers, found) = Claims::list(&claims.shared.path).unwrap();
    assert_eq!((workers.len(), &*workers[0].0.note), (1, "shard 1/2"));
    let stale = Holder { host: "lab-3".to_string(), process: Some(7), since: None };
    let keys: Vec<&str> = found.iter().map(|(key, _)| &**key).collect();
    assert_eq!((keys, &found[0].1, &found[2].1), (vec!["a", "b", "c"], &ClaimState::Stale(stale), &ClaimState::Open));
    assert!(matches!(found[1].1, ClaimState::Held(_)));
}

/// What a large study needs: thousands of claims in a folder, and one look at all of them.
#[test]
fn thousands_of_claims_in_one_folder() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (join(dir.path(), LONG), join(dir.path(), LONG));
    let begun = Instant::now();
    let held: Vec<Claim> = (0..5_000).map(|key| mine(&a, &format!("setting-{key}+seed-1"))).collect();
    b.look(LONG).unwrap();
    assert_eq!((b.held().len(), held.len()), (5_000, 5_000));
    held.iter().for_each(Claim::finish);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}
