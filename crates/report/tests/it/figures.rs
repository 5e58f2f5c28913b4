//! What figures show and say.

use crate::records::{Made, header, name, round, run, study};
use crate::studies::{MADE, load};
use fedelity_record::Header;
use fedelity_report::{Drawing, DrawnFigure, PaperSize, ReportPage};

/// Two data sets with as many classes, and one with fewer: each figure has the classes of its own runs.
#[test]
fn classes_of_one_data_set_are_not_those_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let few = Made { classes: 2, ..MADE };
    for (made, data, class) in [(MADE, "pets", "cat"), (MADE, "cars", "van"), (few, "coins", "head")] {
        let classes = (0..made.classes).map(|number| format!("{class} {number}")).collect();
        let prints = (data.repeat(16), format!("p-{data}"));
        let header = Header {
            dataset: data.to_string(),
            classes,
            dataset_fingerprint: prints.0,
            partition_fingerprint: prints.1,
            ..header(made, "fedavg", 1)
        };
        run(&dir.path().join(data), made, &header, 0);
    }
    let page = ReportPage::new(&load(dir.path()), None).unwrap();
    let mut seen = 0;
    for figure in page.cards.iter().flat_map(|card| &card.figures) {
        let (names, own): (Vec<&String>, usize) = match &figure.drawing {
            Drawing::Heat { method: Some(method), rows, columns, .. } => {
                (rows.iter().chain(columns).filter(|name| name.parse::<u64>().is_err()).collect(), *method)
            }
            Drawing::Classes { classes, series, .. } => {
                let marked: Vec<usize> =
                    (0..3).filter(|&method| series[method].iter().any(|round| !round.is_empty())).collect();
                assert_eq!((marked.len(), series[marked[0]].len() as u64), (1, MADE.rounds), "{}", figure.id);
                (classes.iter().collect(), marked[0])
            }
            _ => continue,
        };
        // Folders are in the order of their names.
        let class = ["van", "head", "cat"][own];
        let strange = names
            .iter()
            .find(|name| ["van", "head", "cat"].iter().any(|other| *other != class && name.starts_with(other)));
        assert_eq!(strange, None, "{}: {}", figure.id, figure.title);
        seen += 1;
    }
    assert!(seen >= 9, "{seen}");
}

#[test]
fn curves_show_single_seeds() {
    let dir = tempfile::tempdir().unwrap();
    study(dir.path(), Made { methods: 2, seeds: 3, ..MADE });
    let report = ReportPage::new(&load(dir.path()), None).unwrap();
    let figure = &report.cards[0].figures[0];
    let Drawing::Lines { series, .. } = &figure.drawing else { panic!("{figure:?}") };
    let line = &series[1].seeds[2];
    let expected: Vec<[f64; 2]> = (1..=6).map(|r| [r as f64, round(MADE, 1, 3, r).accuracy.unwrap()]).collect();
    assert_eq!((series[1].seeds.len(), line.seed, line.points.len()), (3, 3, 6));
    assert!(line.points.iter().zip(&expected).all(|(a, b)| a[0] == b[0] && (a[1] - b[1]).abs() < 1e-8));
    // A line and a dot for each run, beside the means.
    let text = DrawnFigure::new(figure, &report.methods, PaperSize::default()).svg();
    assert_eq!(text.matches("<circle").count(), 6, "{text}");
    assert_eq!(text.matches("stroke-opacity=\"0.75\"").count(), 6, "{text}");
    let alone = tempfile::tempdir().unwrap();
    study(alone.path(), Made { methods: 2, seeds: 1, ..MADE });
    let report = ReportPage::new(&load(alone.path()), None).unwrap();
    let Drawing::Lines { series, .. } = &report.cards[0].figures[0].drawing else { panic!("no curves") };
    assert!(series.iter().all(|series| series.seeds.is_empty()));
}

#[test]
fn the_page_says_what_lines_are_drawn() {
    let said = |methods: usize, seeds: u64| {
        let dir = tempfile::tempdir().unwrap();
        study(dir.path(), Made { methods, seeds, rounds: 2, classes: 2 });
        let report = ReportPage::new(&load(dir.path()), None).unwrap();
        let html = report.html();
        let note = html.split("<p class=note>In the figures, ").nth(1).map(|rest| rest.split("</p>").next().unwrap());
        let captions = report.captions(|figure| figure.id.clone());
        let caption = captions.lines().nth(1).unwrap().split(". ").nth(1).unwrap();
        (note.unwrap_or_default().to_string(), caption.to_string())
    };
    let bands = "bands one standard deviation";
    let thin = "thin lines that end in a dot are single seeds";
    let few = (
        format!("lines are means over seeds, {bands}; {thin}."),
        format!("Lines are means over 2 seeds, {bands}; {thin}"),
    );
    assert_eq!(said(6, 2), few);
    let many = (
        format!(
            "lines are means over seeds. If at most 6 methods are shown, there is more: {bands}; {thin}. Hide some methods to \
             see it."
        ),
        "Lines are means over 2 seeds, without bands".to_string(),
    );
    assert_eq!(said(7, 2), many);
    // Very many seeds have a band, and no lines.
    let crowd = (format!("lines are means over seeds, {bands}."), format!("Lines are means over 21 seeds, {bands}"));
    assert_eq!(said(1, 21), crowd);
    assert_eq!(said(2, 1), (String::new(), "Lines are single runs".to_string()));
}

#[test]
fn captions_are_true_of_their_figure() {
    let dir = tempfile::tempdir().unwrap();
    study(dir.path(), Made { methods: 2, seeds: 2, rounds: 3, classes: 4 });
    let report = ReportPage::new(&load(dir.path()), None).unwrap();
    let captions = report.captions(|figure| figure.id.clone());
    let of = |id: &str| {
        let found = captions.split("\n\n").find_map(|part| part.strip_prefix(id)?.strip_prefix('\n'));
        found.unwrap_or_else(|| panic!("no {id} in {captions}"))
    };
    for (id, start) in [
        ("accuracy", "Accuracy of the global model on the test set after each round. Lines are means over 2 seeds"),
        ("loss", "Cross-entropy loss of the global model on the test set after each round."),
        ("forgetting", "Forgetting of the global model: how far"),
        ("class-cosine", "Cosine between the global model's class accuracies"),
        ("holdings", "Training samples by client and class (dirichlet, alpha 0.1, 20 clients)."),
        (
            "classes-fedcad",
            "Accuracy of the global model on the test set by class and round: fedcad, mean over 2 seeds.",
        ),
        (
            "confusion-before-fedavg",
            "Confusion matrix of the global model that client 3 received in round 3 (fedavg, seed 1)",
        ),
        (
            "confusion-after-fedavg",
            "Confusion matrix of the model of client 3 after its training in round 3 (fedavg, seed 1)",
        ),
        ("confusion-global-fedcad", "Confusion matrix of the global model after round 3 (fedcad, seed 1)"),
        ("forgot-fedavg", "Share of each class's test samples that clients predicted correctly before"),
        ("gradient-diversity", "Gradient diversity: how much"),
        ("term-kd", "The term 'kd' of the mean loss"),
    ] {
        assert!(of(id).starts_with(start), "{id}: {}", of(id));
    }
    assert!(!of("forgetting").contains("osine") && !of("confusion-global-fedavg").contains("client 3"));
    // Every figure has a text of its own.
    let mut texts: Vec<&String> = report.cards.iter().flat_map(|card| &card.figures).map(|one| &one.text).collect();
    let all = texts.len();
    texts.sort_unstable();
    texts.dedup();
    assert!(texts.len() == all && texts.iter().all(|text| text.ends_with('.')), "{texts:#?}");
}

#[test]
fn every_figure_becomes_pdf_svg_and_png() {
    let dir = tempfile::tempdir().unwrap();
    study(dir.path(), Made { methods: 2, seeds: 2, rounds: 3, classes: 4 });
    let report = ReportPage::new(&load(dir.path()), None).unwrap();
    let ids: Vec<&str> = report.cards.iter().map(|card| card.id.as_str()).collect();
    let expected = [
        "accuracy",
        "forgetting",
        "holdings",
        "classes",
        "class-round",
        "local",
        "changes",
        "confusion",
        "drift",
        "cost",
        "terms",
    ];
    assert_eq!(ids, expected);
    let mut kinds = 0;
    for figure in report.cards.iter().flat_map(|card| card.figures.first()) {
        let drawn = DrawnFigure::new(figure, &report.methods, PaperSize::default());
        let text = drawn.svg();
        assert!(text.starts_with("<svg") && text.contains("<text"), "{}", figure.id);
        let image = drawn.png().unwrap();
        assert_eq!(&image[..8], b"\x89PNG\r\n\x1a\n");
        // 88 mm at 600 dots per inch, and something is drawn: plain white compresses far better.
        let wide = u32::from_be_bytes(image[16..20].try_into().unwrap());
        assert!(wide == 2_079 && image.len() > 12_000, "{}: {wide}", figure.id);
        let pdf = drawn.pdf();
        assert!(pdf.starts_with(b"%PDF-") && pdf.ends_with(b"%%EOF"), "{}", figure.id);
        kinds += 1;
    }
    assert_eq!(kinds, expected.len());
    assert_eq!(name(0), report.methods[0].label);
}
