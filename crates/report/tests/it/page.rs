//! The page in a browser: it loads silently, its controls work, and it shows what the records contain.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::browser::Browser;
use crate::records::{Made, header, name, round, run, study};
use fedelity_record::{ClientReport, ClientsReport, LocalScores, RoundRecord, RunFolder, Scores, TestedOn};
use fedelity_report::{FeatureLayouts, LoadedRuns, ReportPage, Results};

fn page(folder: &Path) -> String {
    ReportPage::new(&Results::new(LoadedRuns::load(&[folder.to_path_buf()]).unwrap()), None).unwrap().html()
}

fn write(folder: &Path, html: &str) -> String {
    let path = folder.join("report.html");
    std::fs::write(&path, html).unwrap();
    format!("file://{}", path.display())
}

/// No messages, and no requests except for the page itself.
fn silent(browser: &Browser, address: &str) {
    assert_eq!(browser.complaints, Vec::<String>::new());
    let others: Vec<&String> = browser
        .requests
        .iter()
        .filter(|url| *url != address && !url.starts_with("data:") && *url != "about:blank")
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

/// One browser for all pages: it takes longer to start than they take to load.
#[test]
fn the_page_in_a_browser() {
    let Some(mut browser) = Browser::start() else { return };
    what_is_shown_is_what_was_recorded_and_switches_work(&mut browser);
    everything_has_its_place(&mut browser);
    clients_at_the_end_have_all_columns(&mut browser);
    small_holdings_can_be_seen(&mut browser);
    accuracy_stays_between_nothing_and_all(&mut browser);
    a_live_page_says_how_far_it_is(&mut browser);
    a_live_page_leaves_its_reader_alone(&mut browser);
    a_hostile_name_stays_text(&mut browser);
    every_size_fits(&mut browser);
}

fn what_is_shown_is_what_was_recorded_and_switches_work(browser: &mut Browser) {
    let dir = tempfile::tempdir().unwrap();
    let made = Made { methods: 3, seeds: 3, rounds: 12, classes: 10 };
    study(&dir.path().join("runs"), made);
    let html = page(&dir.path().join("runs"));
    let address = write(dir.path(), &html);
    browser.requests.clear();
    browser.look(1200, false);
    browser.open(&address);
    browser.value("fedelity.drawAll()");
    silent(browser, &address);

    // The table: mean and standard deviation of the last round.
    let accuracies: Vec<f64> = (1..=3).map(|seed| round(made, 1, seed, 12).accuracy.unwrap()).collect();
    let mean = accuracies.iter().sum::<f64>() / 3.0;
    let sd = (accuracies.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2.0).sqrt();
    let cell = browser.value("document.querySelector('#results tbody tr:nth-child(2) td:nth-of-type(2)').textContent");
    assert_eq!(cell, format!("{:.2} ±\u{a0}{:.2}", 100.0 * mean, 100.0 * sd));

    // The curves, point by point.
    let series = browser.value("fedelity.series('accuracy')");
    for (method, one) in series.as_array().unwrap().iter().enumerate() {
        assert_eq!(one["name"], name(method));
        for (at, point) in one["data"].as_array().unwrap().iter().enumerate() {
            let number = at as u64 + 1;
            let values: Vec<f64> = (1..=3).map(|seed| round(made, method, seed, number).accuracy.unwrap()).collect();
            let expected = 100.0 * values.iter().sum::<f64>() / 3.0;
            assert_eq!(point[0], number);
            assert!((point[1].as_f64().unwrap() - expected).abs() < 1e-6, "{point} {expected}");
        }
    }
    // Single seeds, and none of them in the box at the pointer.
    let seeds = browser.value("fedelity.seeds('accuracy')");
    assert_eq!((seeds.as_array().unwrap().len(), &seeds[4]["name"]), (9, &format!("{}, seed 2", name(1)).into()));
    let expected = 100.0 * round(made, 1, 2, 12).accuracy.unwrap();
    assert!((seeds[4]["data"][11][1].as_f64().unwrap() - expected).abs() < 1e-6, "{}", seeds[4]);
    // A map: class 2 of the first method in round 5.
    let cells = browser.value("fedelity.series('classes-fedavg')[0].data.find((c) => c[0] === 4 && c[1] === 2)[2]");
    let values: Vec<f64> = (1..=3).map(|seed| round(made, 0, seed, 5).class_accuracy.unwrap()[2].unwrap()).collect();
    assert!((cells.as_f64().unwrap() - values.iter().sum::<f64>() / 3.0).abs() < 1e-6);

    // Toggle a method off and on.
    browser.value("document.querySelectorAll('#methods button')[1].click()");
    let names = "fedelity.series('accuracy').map((one) => one.name).join()";
    assert_eq!(browser.value(names), format!("{},{}", name(0), name(2)));
    assert_eq!(browser.value("document.querySelectorAll('#card-classes figure').length"), 2);
    browser.value("document.querySelectorAll('#methods button')[1].click()");
    assert_eq!(browser.value("fedelity.series('accuracy').length"), 3);

    // Select another figure, and another round.
    browser.value(
        "(() => { const s = document.querySelector('#card-local select'); s.selectedIndex = 1; s.onchange({ target: s }); })()",
    );
    let found = browser.value("fedelity.series('local-in').find((one) => one.name === 'fedavg, after').data[0][1]");
    let values: Vec<f64> = (1..=3).map(|seed| round(made, 0, seed, 1).local.unwrap().in_after.unwrap()).collect();
    assert!((found.as_f64().unwrap() - 100.0 * values.iter().sum::<f64>() / 3.0).abs() < 1e-6);
    browser.value(
        "(() => { const s = document.querySelector('#card-class-round input'); s.value = 3; s.oninput({ target: s }); })()",
    );
    assert_eq!(browser.value("document.querySelector('#card-class-round span').textContent"), "round 4");
    let found = browser.value("fedelity.series('class-round')[0].data[0]");
    let values: Vec<f64> = (1..=3).map(|seed| round(made, 0, seed, 4).class_accuracy.unwrap()[0].unwrap()).collect();
    assert!((found.as_f64().unwrap() - 100.0 * values.iter().sum::<f64>() / 3.0).abs() < 1e-6);
    silent(browser, &address);
}

/// The left, top, right and bottom edges of an element.
fn edges(browser: &mut Browser, selector: &str) -> [f64; 4] {
    let found = browser.value(&format!(
        "(() => {{ const r = document.querySelector({selector:?}).getBoundingClientRect(); \
         return [r.left, r.top, r.right, r.bottom]; }})()"
    ));
    [0, 1, 2, 3].map(|i| found[i].as_f64().unwrap())
}

fn everything_has_its_place(browser: &mut Browser) {
    let dir = tempfile::tempdir().unwrap();
    let made = Made { methods: 3, seeds: 2, rounds: 6, classes: 10 };
    study(&dir.path().join("runs/one"), made);
    // A second partition.
    for method in 0..2 {
        for seed in 1..=2 {
            let mut header = header(made, &name(method), seed);
            header.partition_fingerprint = "ee".repeat(32);
            let path = run(&dir.path().join(format!("runs/two/{method}/{seed}")), made, &header, method);
            let text = std::fs::read_to_string(path.join("holdings.json")).unwrap();
            std::fs::write(path.join("holdings.json"), text.replacen("[[", "[[1", 1)).unwrap();
        }
    }
    let address = write(dir.path(), &page(&dir.path().join("runs")));
    browser.look(1400, false);
    browser.open(&address);
    browser.value("fedelity.drawAll()");
    // Contents on the side, with every section; two columns beside them.
    let (side, main) = (edges(browser, "#contents"), edges(browser, "#main"));
    assert!(side[2] <= main[0] && side[3] > side[1], "{side:?} {main:?}");
    let links = browser.value(
        "[...document.querySelectorAll('#contents a')].every((a) => document.querySelector(a.getAttribute('href')))",
    );
    assert_eq!(links, true);
    assert_eq!(
        browser.value(
            "document.querySelectorAll('#contents a').length === document.querySelectorAll('section').length + 1"
        ),
        true
    );
    let (a, b) = (edges(browser, "#card-accuracy"), edges(browser, "#card-forgetting"));
    assert!(a[1] == b[1] && a[2] <= b[0], "{a:?} {b:?}");
    // Two partitions side by side, on one scale.
    assert_eq!(browser.value("document.querySelectorAll('#card-holdings figure').length"), 2);
    let (a, b) =
        (edges(browser, "#card-holdings figure:nth-child(1)"), edges(browser, "#card-holdings figure:nth-child(2)"));
    assert!(a[1] == b[1] && a[2] <= b[0], "{a:?} {b:?}");
    // Lines that differ in more than the method have a legend; all methods are in the one on the side.
    assert_eq!(browser.value("document.querySelector('#card-local .legend').textContent"), "afterbefore");
    assert_eq!(browser.value("document.querySelectorAll('#methods button[aria-pressed]').length"), 5);
    // A small screen has neither.
    browser.look(390, false);
    browser.until("innerWidth === 390");
    assert_eq!(browser.value("getComputedStyle(document.querySelector('#contents')).display"), "none");
    let (a, b) = (edges(browser, "#card-accuracy"), edges(browser, "#card-forgetting"));
    assert!(a[3] <= b[1], "{a:?} {b:?}");
    // The table has all its columns at every width.
    for width in [360, 400, 520, 640, 780, 830, 900, 1000, 1100, 1200, 1300, 1400, 1600, 2000] {
        browser.look(width, false);
        browser.until(&format!("innerWidth === {width}"));
        assert_eq!(cut(browser, 0), serde_json::json!([0, []]), "{width}");
        let cells = browser.value("document.querySelectorAll('#results tbody tr:last-child td').length");
        assert_eq!(cells, 14, "{width}");
    }
}

/// What is cut off at the right of the n-th table: pixels, and cells.
fn cut(browser: &mut Browser, table: usize) -> serde_json::Value {
    browser.value(&format!(
        "(() => {{ const box = document.querySelectorAll('.wide')[{table}], edge = box.getBoundingClientRect().right + 0.5; \
         const cut = [...box.querySelectorAll('td, th')].filter((cell) => cell.offsetParent !== null && \
         (cell.getBoundingClientRect().right > edge || cell.scrollWidth > cell.clientWidth + 1)); \
         return [box.scrollWidth - box.clientWidth, cut.map((cell) => cell.textContent)]; }})()"
    ))
}

/// Two classes have the most columns.
fn clients_at_the_end_have_all_columns(browser: &mut Browser) {
    let ranged = Some(fedelity_record::Ranged { value: 0.831, low: 0.792, high: 0.865 });
    let scores = |samples: u64| Scores {
        samples,
        accuracy: ranged,
        balanced_accuracy: Some(0.8125),
        macro_f1: Some(0.75),
        auc: ranged,
        sensitivity: ranged,
        specificity: ranged,
        f1: ranged,
        ..Scores::default()
    };
    let client = |client: u64| ClientReport {
        client,
        samples: 1_000 + client,
        global: Some(scores(120)),
        global_in: Some(0.9),
        own: Some(LocalScores { round: 2, scores: scores(120), accuracy_in: Some(0.9) }),
        ..ClientReport::default()
    };
    let made = Made { methods: 1, seeds: 1, rounds: 2, classes: 2 };
    for (tested_on, columns) in [(TestedOn::Own, 11), (TestedOn::Common, 12)] {
        let dir = tempfile::tempdir().unwrap();
        let mut header = header(made, "fedavg", 1);
        header.client_names = ["charity", "a-hospital-with-a-very-long-name", "st-mary"].map(String::from).to_vec();
        header.clients = 3;
        let path = run(&dir.path().join("runs/a"), made, &header, 0);
        let report = ClientsReport {
            stamp: header.stamp.clone(),
            round: 2,
            tested_on,
            positive: Some(1),
            common: Some(scores(300)),
            clients: (0..3).map(client).collect(),
        };
        std::fs::write(path.join("clients.json"), serde_json::to_string(&report).unwrap()).unwrap();
        let text = std::fs::read_to_string(path.join("rounds.jsonl")).unwrap();
        let mut lines: Vec<String> = text.lines().map(String::from).collect();
        let mut last: serde_json::Value = serde_json::from_str(lines.last().unwrap()).unwrap();
        last["scores"] = serde_json::to_value(scores(360)).unwrap();
        *lines.last_mut().unwrap() = last.to_string();
        std::fs::write(path.join("rounds.jsonl"), lines.join("\n") + "\n").unwrap();
        let address = write(dir.path(), &page(&dir.path().join("runs")));
        browser.look(1300, false);
        browser.open(&address);
        browser.value("fedelity.drawAll()");
        let rows = browser.value(
            "[...document.querySelectorAll('.clients tr')].map((row) => [...row.children].map((one) => one.textContent))",
        );
        let all = rows.as_array().unwrap();
        assert_eq!((all.len(), all[0].as_array().unwrap().len()), (8, columns), "{rows}");
        // All test samples come first; balanced accuracy and macro-F1 are there.
        let first: Vec<&str> = all[1].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
        assert_eq!(first[..4], ["all test samples", "3003", "global, round 2", "360"]);
        assert_eq!(first[columns - 7..columns - 4], ["83.1 (79.2\u{a0}to\u{a0}86.5)", "81.2", "0.750"]);
        // Contents have it, and it does not touch what follows.
        let link = browser.value("document.querySelector('#contents a[href=\"#client-table\"]')?.textContent");
        assert_eq!(link, "Clients at the end");
        let (above, table, below) =
            (edges(browser, "#cards"), edges(browser, "#client-table"), edges(browser, "#reproduce"));
        assert!(table[1] - above[3] >= 10.0 && below[1] - table[3] >= 10.0, "{above:?} {table:?} {below:?}");
        for width in [360, 400, 500, 640, 780, 900, 1000, 1100, 1200, 1240, 1300, 1400, 1600, 2000] {
            browser.look(width, false);
            browser.until(&format!("innerWidth === {width}"));
            browser.value("fedelity.drawAll()");
            assert_eq!(cut(browser, 1), serde_json::json!([0, []]), "{width}");
            let wide = browser.value("document.documentElement.scrollWidth");
            assert!(wide.as_u64().unwrap() <= u64::from(width), "{width}: {wide}");
            if let Some(folder) = std::env::var_os("FEDELITY_SCREENSHOTS").map(PathBuf::from) {
                browser.picture(&folder.join(format!("clients-{columns}-{width}.png")));
            }
        }
    }
}

/// A client with one sample of a class differs from one with none, in both themes.
fn small_holdings_can_be_seen(browser: &mut Browser) {
    let dir = tempfile::tempdir().unwrap();
    let made = Made { methods: 1, seeds: 1, rounds: 2, classes: 3 };
    let path = run(&dir.path().join("runs/a"), made, &header(made, "fedavg", 1), 0);
    let counts = fedelity_record::Holdings::new(vec![vec![0, 1, 5_000], vec![2, 0, 0]]);
    std::fs::write(path.join("holdings.json"), serde_json::to_string(&counts).unwrap()).unwrap();
    let address = write(dir.path(), &page(&dir.path().join("runs")));
    for dark in [false, true] {
        browser.look(1300, dark);
        browser.open(&address);
        let cells = browser
            .value("fedelity.option('holdings').series[0].data.map((one) => [one.itemStyle.color, one.label.show])");
        assert_eq!(cells[0], serde_json::json!(["transparent", false]), "{cells}");
        let colour = |at: usize| cells[at][0].as_str().unwrap().to_string();
        assert_eq!(cells[1][1], true, "its number is shown");
        // One sample of 5,000 has a colour, and the numbers tell it from two.
        assert!(colour(1).starts_with('#') && colour(3).starts_with('#') && colour(1) != colour(2), "{cells}");
        // The scale says so.
        let said = browser
            .value("fedelity.option('holdings').graphic[0].elements.map((one) => one.style.text).filter(Boolean)");
        assert_eq!((&said[0], said.as_array().unwrap().last()), (&"1".into(), Some(&"5000".into())), "{said}");
    }
}

fn accuracy_stays_between_nothing_and_all(browser: &mut Browser) {
    let made = Made { methods: 1, seeds: 1, rounds: 3, classes: 3 };
    for (accuracies, ends) in [
        ([0.7, 0.7, 0.7], [60.0, 80.0]),
        ([1.0, 1.0, 1.0], [90.0, 100.0]),
        ([0.0, 0.0, 0.0], [0.0, 0.01]),
        // ECharts alone would end at 120.
        ([0.2, 0.95, 0.6], [20.0, 100.0]),
        ([0.62, 0.7, 0.74], [62.0, 74.0]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(&dir.path().join("runs")).unwrap();
        let mut file = folder.start_rounds(&header(made, "fedavg", 1)).unwrap();
        for (number, accuracy) in (1..).zip(accuracies) {
            let accuracy = Some(accuracy);
            file.append(&RoundRecord { round: number, accuracy, ..RoundRecord::default() }).unwrap();
        }
        let address = write(dir.path(), &page(&dir.path().join("runs")));
        browser.look(1300, false);
        browser.open(&address);
        let found = browser.value("fedelity.heights('accuracy')");
        let [low, high] = [0, 1].map(|at| found[at].as_f64().unwrap());
        assert!((low - ends[0]).abs() < 5.0 && (high - ends[1]).abs() < 5.0, "{accuracies:?}: {found}");
        assert!(low >= 0.0 && high <= 100.0, "{accuracies:?}: {found}");
    }
}

fn a_live_page_says_how_far_it_is(browser: &mut Browser) {
    let dir = tempfile::tempdir().unwrap();
    let made = Made { methods: 2, seeds: 2, rounds: 12, classes: 3 };
    study(&dir.path().join("runs"), made);
    std::fs::write(dir.path().join("runs/config.toml"), "seeds = [1, 2, 3]\nmethod = [{}, {}]\n").unwrap();
    // The second run of the second method is in its fifth round.
    let open = dir.path().join("runs/fedcad/seed-2");
    std::fs::remove_file(open.join("summary.json")).unwrap();
    let text = std::fs::read_to_string(open.join("rounds.jsonl")).unwrap();
    std::fs::write(open.join("rounds.jsonl"), text.lines().take(6).collect::<Vec<_>>().join("\n") + "\n").unwrap();
    let address = serve(&dir.path().join("runs"));
    browser.look(1200, false);
    browser.open(&address);
    let said = browser.value("document.getElementById('progress').innerText");
    let said = said.as_str().unwrap();
    // 7 rounds of 0.25 s.
    assert!(said.contains("fedcad, seed 2: round 5 of 12, about 2 s left"), "{said}");
    assert!(said.contains("3 of 6 runs finished; about 8 s left for all"), "{said}");
    // A healthy run is no reason for an alarm, and nothing says that it is unfinished or was killed.
    assert_eq!(browser.value("document.querySelectorAll('.warning').length"), 0);
    let text = browser.value("document.body.innerText");
    let text = text.as_str().unwrap();
    assert!(
        ["unfinished", "killed", "no summary", "seeds that count differ"].iter().all(|word| !text.contains(word)),
        "{text}"
    );
    // The same folder, reported when nobody runs it.
    let page = page(&dir.path().join("runs"));
    assert!(page.contains("1 unfinished") && page.contains("was killed") && !page.contains("about 2 s left"));
}

/// A page with large maps that gets new numbers on every request, for as long as the test runs.
fn serve(folder: &Path) -> String {
    let study = Results::new(LoadedRuns::load(&[folder.to_path_buf()]).unwrap());
    let report = ReportPage::with(&study, None, &mut FeatureLayouts::default(), true).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (version, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let mut asked = String::new();
            // A browser opens connections ahead of time, and may close them without sending anything.
            if BufReader::new(&stream).read_line(&mut asked).unwrap_or(0) == 0 {
                continue;
            }
            let (kind, mut text) = match asked.starts_with("GET /data") {
                true => ("application/json", report.news(&version.to_string())),
                false => ("text/html", report.html()),
            };
            text = text.replace("made-up", &format!("made-up-{version}"));
            let length = text.len();
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n");
            let _ = write!(stream, "Connection: close\r\n\r\n{text}");
        }
    });
    address
}

fn a_live_page_leaves_its_reader_alone(browser: &mut Browser) {
    let dir = tempfile::tempdir().unwrap();
    study(&dir.path().join("runs"), Made { methods: 4, seeds: 1, rounds: 20, classes: 60 });
    let address = serve(&dir.path().join("runs"));
    browser.look(1200, false);
    browser.open(&address);
    browser.value("fedelity.drawAll()");
    let text = "document.querySelector('.setting').textContent";
    let next = |browser: &mut Browser| {
        let now = browser.value(text);
        browser.until(&format!("{text} !== {now}"));
    };
    // What is open stays open, the keyboard focus stays, and a selected figure stays selected, in the same elements.
    browser.value("document.querySelector('#reproduce details').open = true");
    browser.value("document.querySelector('#methods button').focus()");
    browser.value(
        "(() => { const s = document.querySelector('#card-accuracy select'); s.selectedIndex = 1; s.onchange({ target: s }); \
         window.kept = [s, document.querySelector('#card-confusion .chart')]; })()",
    );
    next(browser);
    assert_eq!(browser.value("document.querySelectorAll('#reproduce details')[0].open"), true);
    assert_eq!(browser.value("document.activeElement === document.querySelector('#methods button')"), true);
    assert_eq!(browser.value("kept.every((node) => node.isConnected) && kept[0].selectedIndex"), 1);
    browser.value("kept[0].focus()");
    next(browser);
    assert_eq!(browser.value("document.activeElement === kept[0]"), true);
    browser.value("document.querySelector('#reproduce summary').focus()");
    next(browser);
    assert_eq!(browser.value("document.activeElement.tagName"), "SUMMARY");
    // Maps disappear while they are being painted.
    for _ in 0..4 {
        browser.value("fedelity.drawAll(); document.querySelectorAll('#methods button')[4].click()");
        std::thread::sleep(Duration::from_millis(200));
    }
    next(browser);
    assert_eq!(browser.complaints, Vec::<String>::new());
}

fn a_hostile_name_stays_text(browser: &mut Browser) {
    let dir = tempfile::tempdir().unwrap();
    let made = Made { methods: 1, seeds: 1, rounds: 2, classes: 3 };
    let evil = "</script><script>window.stolen=1</script><img src=x onerror=window.stolen=1>{{data}}";
    let mut header = header(made, evil, 1);
    header.classes = vec![evil.to_string(), "b".to_string(), "c".to_string()];
    header.dataset = evil.to_string();
    run(&dir.path().join("runs/a"), made, &header, 0);
    let html = page(&dir.path().join("runs"));
    assert!(!html.contains("<script>window.stolen"));
    assert_eq!(html.matches("</script").count(), 3);
    let address = write(dir.path(), &html);
    browser.requests.clear();
    browser.look(1200, false);
    browser.open(&address);
    browser.value("fedelity.drawAll()");
    assert_eq!(browser.value("window.stolen === undefined"), true);
    assert_eq!(browser.value("document.querySelector('#results tbody th').textContent"), evil);
    silent(browser, &address);
}

/// All common study sizes, at three widths. Screenshots go to the folder in `FEDELITY_SCREENSHOTS`.
fn every_size_fits(browser: &mut Browser) {
    let pictures = std::env::var_os("FEDELITY_SCREENSHOTS").map(PathBuf::from);
    let cases = [
        ("one-method", Made { methods: 1, seeds: 1, rounds: 20, classes: 10 }),
        ("three-methods", Made { methods: 3, seeds: 3, rounds: 30, classes: 10 }),
        ("eighteen-methods", Made { methods: 18, seeds: 2, rounds: 30, classes: 10 }),
        ("one-round", Made { methods: 3, seeds: 1, rounds: 1, classes: 10 }),
        ("five-hundred-rounds", Made { methods: 3, seeds: 2, rounds: 500, classes: 10 }),
        ("hundred-classes", Made { methods: 2, seeds: 1, rounds: 40, classes: 100 }),
    ];
    for (case, made) in cases {
        let dir = tempfile::tempdir().unwrap();
        study(&dir.path().join("runs"), made);
        let address = write(dir.path(), &page(&dir.path().join("runs")));
        browser.requests.clear();
        browser.look(1400, false);
        browser.open(&address);
        for (width, dark) in [(1400, false), (900, true), (390, false), (1400, true), (900, false), (390, true)] {
            // Three combinations cover widths and colour schemes; the rest is for visual inspection.
            if pictures.is_none() && [(1400, true), (900, false), (390, true)].contains(&(width, dark)) {
                continue;
            }
            browser.look(width, dark);
            browser.until(&format!("innerWidth === {width}"));
            browser.value("fedelity.drawAll()");
            let wide = browser.value("document.documentElement.scrollWidth");
            assert!(wide.as_u64().unwrap() <= u64::from(width), "{case} at {width}: {wide}");
            assert_eq!(browser.value("document.querySelectorAll('.chart:not([data-drawn])').length"), 0);
            silent(browser, &address);
            if let Some(folder) = &pictures {
                let scheme = if dark { "dark" } else { "light" };
                browser.picture(&folder.join(format!("{case}-{width}-{scheme}.png")));
            }
        }
        // In print, every map is a drawing with all its cells.
        browser.value("dispatchEvent(new Event('beforeprint'))");
        let missing = browser.value(
            "[...document.querySelectorAll('.chart.heat')].filter((node) => { \
             const cells = fedelity.series(node.dataset.figure)[0].data.length; \
             return !node.nextElementSibling || node.nextElementSibling.querySelectorAll('path').length < cells; \
             }).map((node) => node.dataset.figure)",
        );
        assert_eq!(missing, serde_json::json!([]), "{case}");
        // Panels hidden on screen are printed too, and the selection is stated.
        let panels = made.methods * 3;
        assert_eq!(browser.value("document.querySelectorAll('#card-confusion figure').length"), panels, "{case}");
        let said = browser.value("document.querySelector('#card-local .paper').textContent");
        assert_eq!(said, "Outside their own distribution");
        let bands = "document.querySelector('#card-accuracy .note').hidden";
        assert_eq!(browser.value(bands), made.methods <= 6 || made.seeds == 1, "{case}");
        // Hiding methods brings bands and single seeds, as the page says.
        if made.methods > 6 && made.seeds > 1 {
            assert_eq!(browser.value("fedelity.seeds('accuracy').length"), 0);
            let click = "[...document.querySelectorAll('#methods button[aria-pressed]')].slice(6).forEach((one) => one.click())";
            browser.value(click);
            assert_eq!(browser.value("fedelity.seeds('accuracy').length"), 6 * made.seeds);
            assert_eq!(browser.value(bands), true);
            browser.value(click);
        }
        browser.value("dispatchEvent(new Event('afterprint'))");
        assert_eq!(
            browser.value("document.querySelectorAll('#card-confusion figure').length"),
            panels.min(6),
            "{case}"
        );
        assert_eq!(browser.value("document.querySelectorAll('.twin').length"), 0);
        if let Some(folder) = &pictures {
            browser.look(900, false);
            browser.print(&folder.join(format!("{case}.pdf")));
        }
    }
}
