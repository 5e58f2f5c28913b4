//! What a site allows: refused before anything is trained, with the place of the key that refuses it.

use std::path::Path;

use fedelity_experiment::{Agreement, Client, Document, Resources, Server, Site, Study};
use fedelity_fl::wire::Wire;
use fedelity_fl::{Upload, observe::drift};

use crate::bits::{server, write_table};

const STUDY: &str = "rounds = 3\n[data]\nname = \"csv\"\ntrain = \"small.csv\"\n[partition]\nclients = 2\nkind = \"iid\"\n\
                     [clients]\nper-round = 2\nepochs = 1\nbatch = 20\n[model]\nname = \"mlp\"\n";
/// Magic, digest and one number.
const FRAME: usize = 52;

struct Federation {
    server: Server,
    agreement: Agreement,
    /// The server's message for the site.
    message: Vec<u8>,
}

fn federation(folder: &Path, method: &str, sets: &[&str]) -> Federation {
    let mut document = Document::parse("study.toml".to_string(), folder.to_path_buf(), STUDY).unwrap();
    document.set(&format!("method.name={method}")).unwrap();
    server(method).iter().chain(sets).for_each(|set| document.set(set).unwrap());
    let study = Study::load_with(&document, &Resources::default()).unwrap();
    let mut server = Server::new(study, 1).unwrap();
    server.open().unwrap();
    let (agreement, message) = (server.agreement().clone(), server.message(1).unwrap());
    Federation { server, agreement, message }
}

fn site(folder: &Path, policy: &str) -> Site {
    parse(folder, policy).unwrap()
}

fn parse(folder: &Path, policy: &str) -> fedelity_experiment::Result<Site> {
    let text = format!(
        "server = \"127.0.0.1:8000\"\nclient = 1\n[data]\nname = \"csv\"\ntrain = \"small.csv\"\n[policy]\n{policy}\n"
    );
    Site::of(Document::parse("site.toml".to_string(), folder.to_path_buf(), &text)?)
}

/// The upload of a site, the global weights it started from, and their trainable parts.
fn upload(federation: &Federation, client: &mut Client) -> Upload {
    let sent = client.train(&federation.message).unwrap();
    Upload::from_bytes(&sent[FRAME..]).unwrap()
}

fn norm(federation: &Federation, upload: &Upload) -> f64 {
    let global = federation.server.weights();
    drift(global, &upload.params, std::slice::from_ref(&(0..global.len())))
}

#[test]
fn a_file_with_mistakes_is_refused_with_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |policy: &str| parse(dir.path(), policy).unwrap_err().to_string();
    assert_eq!(
        refused("noise = 1.0"),
        "site.toml:7:1: policy.noise: needs largest-update, which it is measured by: set it, such as largest-update = 1.0"
    );
    let text = refused("methods = [\"fedavg\", \"fedavgg\"]");
    assert!(text.starts_with("site.toml:7:1: policy.methods: 'fedavgg' is not a method; expected some of"), "{text}");
    let text = refused("fewest = 3");
    assert!(text.starts_with("site.toml:7:1: unknown key 'policy.fewest', did you mean"), "{text}");
    let document = Document::parse("site.toml".to_string(), dir.path().to_path_buf(), "client = 1\n").unwrap();
    let nowhere = Site::of(document).unwrap_err().to_string();
    assert!(nowhere.contains("server is missing"), "{nowhere}");
}

#[test]
fn what_the_policy_forbids_is_not_trained() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let resources = Resources::default();
    let refused = |method: &str, sets: &[&str], policy: &str| {
        let agreement = federation(dir.path(), method, sets).agreement;
        let client = site(dir.path(), policy).client(&agreement, [7; 32], &resources);
        client.err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(refused("fedntd", &[], ""), "");
    assert_eq!(refused("fedntd", &[], "methods = [\"fedavg\", \"fedntd\"]"), "");
    assert_eq!(
        refused("fedntd", &[], "methods = [\"fedavg\"]"),
        "site.toml:7:1: policy.methods: the server asks for 'fedntd', and this site runs only fedavg"
    );
    let text = refused("fedgen", &[], "");
    assert!(text.starts_with("site.toml:6:2: policy.label-counts: the method 'fedgen' tells the server"), "{text}");
    assert_eq!(refused("fedgen", &[], "label-counts = true"), "");
    let text = refused("fedavg", &[], "fewest-samples = 1000000");
    assert!(text.ends_with("the site has fewer samples than the 1000000 that its policy wants"), "{text}");
    let text = refused("scaffold", &[], "most-bytes-up = 1000");
    assert!(text.starts_with("site.toml:7:1: policy.most-bytes-up: "), "{text}");
    // Noise would not hide what else leaves, and the server must not weight by a hidden number of samples.
    let noise = "largest-update = 1.0\nnoise = 0.5";
    let text = refused("scaffold", &["clients.weighting=uniform"], noise);
    assert!(text.contains("policy.noise") && text.contains("control-change"), "{text}");
    let text = refused("fedavg", &[], noise);
    assert!(text.contains("clients.weighting = \"uniform\""), "{text}");
    assert_eq!(refused("fedavg", &["clients.weighting=uniform"], noise), "");
    // SCAFFOLD's other array would tell how large the update was before it was limited.
    let text = refused("scaffold", &[], "largest-update = 1.0");
    let why = "policy.largest-update: the method 'scaffold' also sends control-change, which would leave clients without a limit";
    assert!(text.contains(why), "{text}");
    assert_eq!(refused("fedntd", &[], "largest-update = 1.0"), "");
}

#[test]
fn state_is_kept_beside_the_file() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(site(dir.path(), "").keys.state, dir.path().join("state"));
}

#[test]
fn a_site_without_limits_sends_what_any_client_would() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let (federation, resources) = (federation(dir.path(), "scaffold", &[]), Resources::default());
    let site = site(dir.path(), "");
    let data = "[data]\nname = \"csv\"\ntrain = \"small.csv\"\n";
    let data = Document::parse("data.toml".to_string(), dir.path().to_path_buf(), data).unwrap();
    let mut plain = Client::of_site(&federation.agreement, 1, &data, &resources).unwrap();
    let mut own = site.client(&federation.agreement, [7; 32], &resources).unwrap();
    let message = federation.message;
    let sent = own.train(&message).unwrap();
    assert_eq!(sent, plain.train(&message).unwrap());
    let report = site.report(&federation.agreement, &resources).unwrap();
    let (received, sent) = (own.received(&message).unwrap(), own.sent(&sent).unwrap());
    assert_eq!((received.round, sent.round), (1, 1));
    assert_eq!(received.arrays.keys().collect::<Vec<_>>(), ["weights"]);
    // What the report announces is what leaves.
    let announced = report.arrays.iter().map(|(name, numbers)| (name.clone(), *numbers as usize)).collect();
    assert_eq!(sent.arrays, announced);
    assert_eq!(report.samples, own.samples());
    assert_eq!(report.classes.values().sum::<usize>(), own.samples());
    assert!(own.received(b"nonsense").is_err() && own.sent(&message).is_err());
}

#[test]
fn limits_and_noise_only_tighten() {
    let dir = tempfile::tempdir().unwrap();
    write_table(dir.path());
    let resources = Resources::default();
    let plain = federation(dir.path(), "fedavg", &["clients.weighting=uniform"]);
    let of = |federation: &Federation, policy: &str, entropy: u8| {
        site(dir.path(), policy).client(&federation.agreement, [entropy; 32], &resources).unwrap()
    };
    let free = upload(&plain, &mut of(&plain, "", 1));
    let length = norm(&plain, &free);
    assert!(length > 0.1, "{length}");
    let limited = upload(&plain, &mut of(&plain, "largest-update = 0.05", 1));
    assert!((norm(&plain, &limited) - 0.05).abs() < 1e-6, "{}", norm(&plain, &limited));
    assert_eq!(limited.examples, free.examples);
    let loose = upload(&plain, &mut of(&plain, "largest-update = 1000.0", 1));
    assert_eq!(loose.params, free.params);

    let noisy = "largest-update = 0.05\nnoise = 2.0";
    let mut client = of(&plain, noisy, 1);
    let (first, second) = (upload(&plain, &mut client), upload(&plain, &mut client));
    let other = upload(&plain, &mut of(&plain, noisy, 2));
    let again = upload(&plain, &mut of(&plain, noisy, 1));
    assert_eq!(first, again);
    assert!(first.params != second.params && first.params != other.params);
    assert_eq!((first.examples, first.steps), (0, 0));
    // The update is at most half a deviation of the noise long in all, so what is seen is the noise.
    let deviation = |federation: &Federation, upload: &Upload| {
        norm(federation, upload) / (federation.server.weights().len() as f64).sqrt()
    };
    let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.1;
    assert!(near(deviation(&plain, &first), 0.1), "{}", deviation(&plain, &first));

    // The server asks for noise of 0.5 on updates of norm 0.2: the larger noise and the smaller norm hold.
    let asked = ["clients.weighting=uniform", "server.clip-update=0.2", "privacy.noise=2.5", "privacy.at=client"];
    let asking = federation(dir.path(), "fedavg", &asked);
    for (policy, wanted) in [("", 0.5), (noisy, 0.5), ("largest-update = 1.0\nnoise = 1.0", 1.0)] {
        let found = deviation(&asking, &upload(&asking, &mut of(&asking, policy, 1)));
        assert!(near(found, wanted), "{policy}: {found}");
    }
    let report = site(dir.path(), noisy).report(&asking.agreement, &resources).unwrap();
    assert_eq!((report.largest_update, report.noise, report.counts_and_loss), (Some(0.05), Some(0.5), false));
    // With the site's entropy, noise that the server asks for is not what the server could compute.
    let known = Client::of_site(
        &asking.agreement,
        1,
        &{
            let data = "[data]\nname = \"csv\"\ntrain = \"small.csv\"\n";
            Document::parse("data.toml".to_string(), dir.path().to_path_buf(), data).unwrap()
        },
        &resources,
    );
    assert!(upload(&asking, &mut known.unwrap()).params != upload(&asking, &mut of(&asking, "", 1)).params);
}
