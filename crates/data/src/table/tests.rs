use super::*;
use std::fs;

/// A table and its format.
struct Written(TableFormat, TableSource);

impl std::ops::Deref for Written {
    type Target = TableSource;

    fn deref(&self) -> &TableSource {
        &self.1
    }
}

impl std::ops::DerefMut for Written {
    fn deref_mut(&mut self) -> &mut TableSource {
        &mut self.1
    }
}

fn table(dir: &Path, format: TableFormat, train: &[u8]) -> Written {
    let train_path = dir.join("train");
    fs::write(&train_path, train).unwrap();
    let label = "label".to_string();
    let (test, text, features, key) = (None, None, None, None);
    Written(format, TableSource { train: train_path, test, test_fraction: Some(0.25), label, text, features, key })
}

fn read(table: &Written, skipped: &mut Skipped) -> Result<Dataset, DataError> {
    super::read(table.0, table, skipped)
}

fn error(format: TableFormat, content: &[u8]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let table = table(dir.path(), format, content);
    let text = read(&table, &mut Skipped::default()).unwrap_err().to_string();
    assert!(text.starts_with(&dir.path().join("train").display().to_string()), "{text}");
    text.replace(&dir.path().join("train").display().to_string(), "F")
}

#[test]
fn numbers_are_standardised_over_the_training_rows() {
    let dir = tempfile::tempdir().unwrap();
    let mut table = table(dir.path(), TableFormat::Csv, b"a,name,b,label,site\n1,x,5,no,s\n3,y,5,yes,t\n");
    let test = dir.path().join("test");
    // A different order, and one more column.
    fs::write(&test, "label,b,more,site,a,name\nyes,6,0,t,2,z\n").unwrap();
    table.test = Some(test);
    table.key = Some("site".to_string());
    let set = read(&table, &mut Skipped::default()).unwrap();
    assert_eq!(set.shape, Shape::Numbers(2));
    assert_eq!(set.classes, ["no", "yes"]);
    assert_eq!(set.train.inputs, Inputs::Floats(vec![-1.0, 0.0, 1.0, 0.0]));
    assert_eq!(set.test.inputs, Inputs::Floats(vec![0.0, 1.0]));
    assert_eq!((set.train.labels, set.test.labels), (vec![0, 1], vec![1]));
    assert_eq!(set.train.keys.unwrap(), NaturalKeys { of: vec![0, 1], names: vec!["s".to_string(), "t".to_string()] });
    assert_eq!(set.normalisation, Normalisation { mean: vec![2.0, 5.0], std: vec![1.0, 1.0] });
}

#[test]
fn both_formats_give_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let mut csv = String::from("\u{feff}label,x,y\r\n");
    let mut json = String::new();
    for i in 0..40 {
        let (label, x, y) = (i % 3, f64::from(i) * 0.5, f64::from(i * i % 7) - 3.25);
        csv += &format!("{label},{x},{y}\r\n");
        json += &format!("{{\"y\": {y}, \"label\": {label}, \"x\": {x}}}\n\n");
    }
    let a = read(&table(dir.path(), TableFormat::Csv, csv.as_bytes()), &mut Skipped::default()).unwrap();
    let b = read(&table(dir.path(), TableFormat::Jsonl, json.as_bytes()), &mut Skipped::default()).unwrap();
    assert_eq!((a.train, a.test), (b.train, b.test));
    assert_eq!(a.classes, ["0", "1", "2"]);
}

#[test]
fn a_quarter_of_each_class_is_used_for_testing() {
    let dir = tempfile::tempdir().unwrap();
    let rows: String = (0..60).map(|i| format!("{},text number {i}\n", if i < 40 { "a" } else { "b" })).collect();
    let set =
        read(&table(dir.path(), TableFormat::Csv, format!("label,text\n{rows}").as_bytes()), &mut Skipped::default());
    let set = set.unwrap();
    assert_eq!(set.shape, Shape::Text);
    assert_eq!(set.train.label_counts(2), [30, 15]);
    assert_eq!(set.test.label_counts(2), [10, 5]);
    let Inputs::Texts(texts) = &set.test.inputs else { panic!("no texts") };
    assert!(texts.iter().all(|text| text.starts_with("text number ")));
}

#[test]
fn numeric_labels_are_in_numeric_order() {
    let dir = tempfile::tempdir().unwrap();
    let set =
        read(&table(dir.path(), TableFormat::Csv, b"label,x\n10,1\n9,2\n-1,3\n"), &mut Skipped::default()).unwrap();
    assert_eq!(set.classes, ["-1", "9", "10"]);
}

#[test]
fn bad_rows_name_their_line() {
    let bad = "; --skip-bad skips what cannot be used, and counts it";
    let csv = |rows: &str| error(TableFormat::Csv, format!("label,x\n{rows}").as_bytes());
    assert_eq!(csv("a,1\n,2\n"), format!("F:3: no label: column 'label' is empty{bad}"));
    assert_eq!(csv("a,1\nb,\n"), format!("F:3: no number: column 'x' is empty{bad}"));
    assert_eq!(csv("a,1\nb,two\n"), format!("F:3: column 'x': expected a number, found 'two'{bad}"));
    assert_eq!(csv("a,1\nb,inf\n"), format!("F:3: column 'x': expected a finite number, found inf{bad}"));
    assert_eq!(csv("a,1\nb\n"), format!("F:3: expected 2 fields, as in the first line, found 1{bad}"));
    assert_eq!(
        error(TableFormat::Csv, b"label,text\na,good\nb,caf\xe9\n"),
        format!("F:3: column 'text': invalid UTF-8 at byte 3 of the field{bad}")
    );
    assert_eq!(error(TableFormat::Csv, b"label,x\n"), "F: the file has no rows");
    assert_eq!(
        error(TableFormat::Csv, b"y,x\n1,2\n"),
        "F:1: there is no column 'label' for data.label; the columns are y, x"
    );
    assert_eq!(error(TableFormat::Csv, b"x,x\n1,2\n"), "F:1: there are two columns 'x'");
    assert_eq!(
        error(TableFormat::Csv, b"label,x\na,b\n"),
        "F:1: there is no numeric column to learn from, and no data.text"
    );
    let json = |rows: &str| error(TableFormat::Jsonl, rows.as_bytes());
    assert!(json("{\"label\":1,\"x\":2}\n{\"label\":1,\"x\":2\n").starts_with("F:2: not JSON: "));
    assert_eq!(json("{\"label\":1,\"x\":2}\n{\"x\":2}\n"), format!("F:2: there is no key 'label'{bad}"));
    assert_eq!(json("{\"label\":1,\"x\":2}\n[1]\n"), format!("F:2: expected a JSON object, found [1]{bad}"));
    assert_eq!(
        json("{\"label\":1,\"x\":2}\n{\"label\":1,\"x\":\"2\"}\n"),
        format!("F:2: key 'x': expected a number, found \"2\"{bad}")
    );
    assert_eq!(
        error(TableFormat::Jsonl, b"{\"label\":1,\"x\":2}\n\n{\"label\":\"\xff\",\"x\":2}\n"),
        format!("F:3: invalid UTF-8 at byte 10 of the line{bad}")
    );
}

#[test]
fn left_out_rows_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let table = table(dir.path(), TableFormat::Csv, b"label,x,y\na,1,1\n,2,2\nb,3,oops\nb,4,5\n");
    let mut skipped = Skipped::new(true);
    let set = read(&table, &mut skipped).unwrap();
    assert_eq!((set.train.len() + set.test.len(), skipped.count), (2, 2));
    assert_eq!(skipped.first.len(), 2);
}

#[test]
fn a_test_label_without_training_rows_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut table = table(dir.path(), TableFormat::Csv, b"label,x\na,1\nb,2\n");
    let test = dir.path().join("test");
    fs::write(&test, "label,x\na,1\nc,2\n").unwrap();
    table.test = Some(test);
    let text = read(&table, &mut Skipped::default()).unwrap_err().to_string();
    assert!(text.contains("test:3: label 'c' has no samples in "), "{text}");
}
