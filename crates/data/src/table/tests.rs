use super::*;
use crate::dataset::Normalisation;
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
    let (train, test_fraction, categories, ignore) = (TableFiles::One(train_path), Some(0.25), Vec::new(), Vec::new());
    Written(format, TableSource { train, test, test_fraction, label, text, features, categories, ignore, key })
}

fn read(table: &Written, skipped: &mut Skipped) -> Result<Dataset, DataError> {
    super::read(table.0, table, TableReading { form: None, divide: true }, skipped)
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
    table.test = Some(TableFiles::One(test));
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
    let bad = "; --skip-bad, or data.skip-bad = true, skips what cannot be used, and counts it";
    let csv = |rows: &str| error(TableFormat::Csv, format!("label,x\n{rows}").as_bytes());
    assert_eq!(csv("a,1\n,2\n"), format!("F:3: no label: column 'label' is empty{bad}"));
    assert_eq!(csv("a,1\nb,\n"), format!("F:3: no number: column 'x' is empty{bad}"));
    assert_eq!(csv("a,1\nb,two\n"), format!("F:3: column 'x': expected a number, found 'two'{bad}"));
    assert_eq!(
        csv("a,1\nb,inf\n"),
        format!("F:3: column 'x': expected a finite number of at most 3.4028235e38, found inf{bad}")
    );
    assert_eq!(csv("a,1\nb\n"), format!("F:3: expected 2 fields, as in the first line, found 1{bad}"));
    assert_eq!(
        error(TableFormat::Csv, b"label,text\na,good\nb,caf\xe9\n"),
        format!("F:3: column 'text': invalid UTF-8 at byte 3 of the field: {}", crate::csv_file::NOT_UTF8)
    );
    assert_eq!(error(TableFormat::Csv, b"label,x\n"), "F: the file has no rows");
    assert_eq!(
        error(TableFormat::Csv, b"y,x\n1,2\n"),
        "F:1: there is no column 'label' for data.label; the columns are y, x"
    );
    assert_eq!(error(TableFormat::Csv, b"x,x\n1,2\n"), "F:1: there are two columns 'x'");
    assert_eq!(
        error(TableFormat::Csv, b"label,x\na,b\n"),
        "F:1: there is no column to learn from: column 'x' is left out: it has the same value in every row"
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

/// Columns are looked up by name, not by going through all of them for each.
#[test]
fn a_table_may_have_very_many_columns() {
    let dir = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..60_000).map(|n| format!("column {n}")).collect();
    let row = |label: &str| format!("{label}{}\n", ",1".repeat(names.len()));
    let rows = [format!("label,{}\n", names.join(",")), row("a"), row("b"), row("a"), row("b")].concat();
    let mut table = table(dir.path(), TableFormat::Csv, rows.as_bytes());
    let start = std::time::Instant::now();
    let found = read(&table, &mut Skipped::default()).unwrap();
    assert_eq!(found.shape, Shape::Numbers(60_000));
    let again = TableReading { form: found.table.as_ref(), divide: true };
    super::read(TableFormat::Csv, &table, again, &mut Skipped::default()).unwrap();
    let other = dir.path().join("other");
    fs::write(&other, rows.replace("column 59999", "another")).unwrap();
    table.train = TableFiles::Several(vec![dir.path().join("train"), other]);
    assert!(read(&table, &mut Skipped::default()).unwrap_err().to_string().contains("no column 'column 59999'"));
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn a_test_label_without_training_rows_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut table = table(dir.path(), TableFormat::Csv, b"label,x\na,1\nb,2\n");
    let test = dir.path().join("test");
    fs::write(&test, "label,x\na,1\nc,2\n").unwrap();
    table.test = Some(TableFiles::One(test));
    let text = read(&table, &mut Skipped::default()).unwrap_err().to_string();
    assert!(text.contains("test:3: label 'c' has no samples in "), "{text}");
}

/// Forty rows: a number, a category with an empty field, an identifier, a free text and a constant word.
fn patients() -> String {
    let mut rows = "record;age;sex;remarks;ward;country;label\n".to_string();
    for i in 0..40 {
        let sex = ["f", "m", ""][i % 3];
        rows += &format!("{};{},5;{sex};remark {i};{};xy;{}\n", 1000 + i, 30 + i % 7, 1 + i % 2, ["a", "b"][i % 2]);
    }
    rows
}

#[test]
fn words_become_categories_and_semicolons_are_recognised() {
    let dir = tempfile::tempdir().unwrap();
    let mut table = table(dir.path(), TableFormat::Csv, patients().as_bytes());
    table.categories = vec!["ward".to_string()];
    let set = read(&table, &mut Skipped::default()).unwrap();
    let form = set.table.as_ref().unwrap();
    assert_eq!((form.label.as_str(), set.shape), ("label", Shape::Numbers(6)));
    let names: Vec<(&str, usize)> = form.columns.iter().map(|column| (column.name.as_str(), column.width())).collect();
    assert_eq!(names, [("record", 1), ("age", 1), ("sex", 2), ("ward", 2)]);
    assert_eq!(form.columns[2].kind, ColumnKind::Categories(vec!["f".to_string(), "m".to_string()]));
    assert_eq!(form.others, ["remarks", "country"]);
    let ColumnKind::Number { mean, .. } = form.columns[1].kind else { panic!("not a number") };
    assert!((32.0..34.0).contains(&mean), "decimal commas: {mean}");
    for note in [
        "train: columns are separated by semicolons, so 1,5 is read as 1.5",
        "column 'remarks' is left out: it has 40 different texts in 40 rows",
        "column 'country' is left out: it has the same value in every row",
        "column 'record' looks like an identifier (it is different in each of 40 rows), from which a model can learn rows \
         by heart: data.ignore = [\"record\"] leaves it out",
    ] {
        assert!(set.remarks().iter().any(|remark| remark.ends_with(note)), "{note}: {:?}", set.remarks());
    }
    assert_eq!(form.notes.len(), 4);
    // A row of sex f, one of m and one with an empty field; and the ward, a number that is a name.
    let Inputs::Floats(values) = &set.train.inputs else { panic!("no numbers") };
    let rows: Vec<&[f32]> = values.chunks(6).collect();
    for row in [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]] {
        assert!(rows.iter().any(|found| found[2..4] == row), "{row:?}");
    }
    assert!(rows.iter().zip(&set.train.labels).all(|(row, &label)| row[4 + usize::from(label)] == 1.0));
    // What is ignored is not spoken of; what is asked for is not questioned.
    table.ignore = vec!["record".to_string(), "country".to_string(), "remarks".to_string()];
    assert_eq!(read(&table, &mut Skipped::default()).unwrap().remarks().len(), 1);
    (table.ignore, table.categories) = (Vec::new(), Vec::new());
    table.features = Some(vec!["record".to_string(), "country".to_string()]);
    let set = read(&table, &mut Skipped::default()).unwrap();
    assert_eq!((set.shape, set.remarks().len()), (Shape::Numbers(2), 1));
    table.categories = vec!["sex".to_string()];
    let text = read(&table, &mut Skipped::default()).unwrap_err().to_string();
    assert!(text.contains("column 'sex' of data.categories is not one of those to learn from"), "{text}");
}

/// The form of a model trained on age, sex and ward, and a file for it.
fn trained(dir: &Path) -> (TableForm, Dataset) {
    let mut table = table(dir, TableFormat::Csv, patients().as_bytes());
    table.ignore = vec!["record".to_string(), "country".to_string()];
    let set = read(&table, &mut Skipped::default()).unwrap();
    (set.table.clone().unwrap(), set)
}

#[test]
fn a_model_finds_its_columns_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let (form, set) = trained(dir.path());
    // The same rows in another order, with points and commas, as another format and without what is not read.
    let mut other = "label,ward,sex,age\n".to_string();
    let mut json = String::new();
    for line in patients().lines().skip(1) {
        let fields: Vec<&str> = line.split(';').collect();
        let (age, sex, ward, label) = (fields[1].replace(',', "."), fields[2], fields[4], fields[6]);
        other += &format!("{label},{ward},{sex},{age}\n");
        json += &format!("{{\"sex\":\"{sex}\",\"age\":{age},\"ward\":{ward},\"label\":\"{label}\"}}\n");
    }
    let new = |format: TableFormat, content: &str, divide: bool| {
        let table = table(dir.path(), format, content.as_bytes());
        super::read(format, &table, TableReading { form: Some(&form), divide }, &mut Skipped::default())
    };
    let same = new(TableFormat::Csv, &other, true).unwrap();
    assert_eq!((&same.train, &same.test), (&set.train, &set.test));
    assert_eq!(new(TableFormat::Jsonl, &json, true).unwrap().train, set.train);
    let whole = new(TableFormat::Csv, &other, false).unwrap();
    assert_eq!((whole.train.len(), whole.test.len()), (0, 40));
    let path = dir.path().join("rows.csv");
    fs::write(&path, &other).unwrap();
    let rows = unlabelled(&path, &form, &[], &mut Skipped::default()).unwrap();
    assert_eq!(Inputs::Floats(rows.numbers), whole.test.inputs);
    assert_eq!((rows.lines[0], rows.lines.len(), rows.notes.len()), (2, 40, 0));

    let refused = |content: &str| new(TableFormat::Csv, content, false).unwrap_err().to_string();
    let text = refused("label,ward,gender,age\na,1,f,30\n");
    assert!(
        text.ends_with(
            "train:1: there is no column 'sex': the model reads 'age', 'sex', 'ward'; the columns of the file are 'label', \
             'ward', 'gender', 'age'"
        ),
        "{text}"
    );
    let text = refused("label,ward,sex,age,weight\na,1,f,30,70\n");
    assert!(
        text.ends_with("the model does not know the column 'weight': it reads 'age', 'sex', 'ward'; --ignore 'weight', or data.ignore = [\"weight\"], leaves it out"),
        "{text}"
    );
    let text = refused("label,ward,sex,age,weight,size\na,1,f,30,70,170\n");
    assert!(
        text.ends_with("the model does not know the columns 'weight', 'size': it reads 'age', 'sex', 'ward'; --ignore 'weight' --ignore 'size', or data.ignore = [\"weight\", \"size\"], leave them out"),
        "{text}"
    );
    let text = refused("outcome,ward,sex,age\na,1,f,30\n");
    assert!(text.contains("there is no column 'label' for data.label; the columns are outcome, ward"), "{text}");
    fs::write(&path, "age,sex,ward,weight\n30,f,1,70\n30,x,1,80\n30,y,1,80\n").unwrap();
    assert!(unlabelled(&path, &form, &[], &mut Skipped::default()).is_err());
    let rows = unlabelled(&path, &form, &["weight".to_string()], &mut Skipped::default()).unwrap();
    assert_eq!((rows.numbers[1..3].to_vec(), rows.numbers[5..7].to_vec()), (vec![1.0, 0.0], vec![0.0, 0.0]));
    assert!(rows.notes[0].contains("2 values are not among the categories of column 'sex'"), "{:?}", rows.notes);
    assert!(rows.notes[0].contains("'x', 'y'; they count as none of them"), "{:?}", rows.notes);
    // A text where a number is needed.
    fs::write(&path, "age,sex,ward\nold,f,1\n30,f,1\n").unwrap();
    let text = unlabelled(&path, &form, &[], &mut Skipped::default()).unwrap_err().to_string();
    assert!(text.contains("rows.csv:2: column 'age': expected a number, found 'old'"), "{text}");
    assert_eq!(unlabelled(&path, &form, &[], &mut Skipped::new(true)).unwrap().lines, [3]);
}

/// Rows of one hospital, with the columns in some order.
fn hospital(number: usize, rows: usize, order: [&str; 3]) -> String {
    let mut text = order.join(",") + "\n";
    for i in 0..rows {
        let fields = order.map(|name| match name {
            "label" => ["ill", "well"][i % 2].to_string(),
            "age" => (20 + (i * 13 + number * 5) % 50).to_string(),
            _ => ["north", "south", "east"][(i + number) % 3].to_string(),
        });
        text += &(fields.join(",") + "\n");
    }
    text
}

fn hospitals(dir: &Path) -> Vec<std::path::PathBuf> {
    let orders = [["label", "age", "ward"], ["ward", "label", "age"], ["age", "ward", "label"]];
    let files = orders.into_iter().zip(["mercy", "charity", "st-mary"]).enumerate().map(|(i, (order, name))| {
        let path = dir.join(format!("{name}.csv"));
        fs::write(&path, hospital(i, 20 + 10 * i, order)).unwrap();
        path
    });
    files.collect()
}

/// Three files with the columns in three orders are what one file with all rows and a column of sites is.
#[test]
fn several_files_are_one_table_of_several_sites() {
    let dir = tempfile::tempdir().unwrap();
    let paths = hospitals(dir.path());
    let mut joined = "label,age,ward,site\n".to_string();
    for (i, site) in ["mercy", "charity", "st-mary"].iter().enumerate() {
        let rows = hospital(i, 20 + 10 * i, ["label", "age", "ward"]);
        joined += &rows.lines().skip(1).map(|row| format!("{row},{site}\n")).collect::<String>();
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let mut one = table(elsewhere.path(), TableFormat::Csv, joined.as_bytes());
    one.key = Some("site".to_string());
    let expected = read(&one, &mut Skipped::default()).unwrap();
    let mut several = table(elsewhere.path(), TableFormat::Csv, b"");
    several.train = TableFiles::Several(paths.clone());
    let found = read(&several, &mut Skipped::default()).unwrap();
    assert_eq!((&found.train, &found.test, &found.classes), (&expected.train, &expected.test, &expected.classes));
    assert_eq!(found.train.keys.as_ref().unwrap().names, ["mercy", "charity", "st-mary"]);
    // The folder has them in the order of their names, and what file managers leave behind is no site.
    fs::write(dir.path().join("Thumbs.db"), "x").unwrap();
    several.train = TableFiles::One(dir.path().to_path_buf());
    let folder = read(&several, &mut Skipped::default()).unwrap();
    assert_eq!(folder.train.keys.as_ref().unwrap().names, ["charity", "mercy", "st-mary"]);
    assert_eq!(folder.train.len(), expected.train.len());
    // Test rows belong to the site of the same name.
    several.test = Some(TableFiles::Several(vec![paths[2].clone()]));
    let tested = read(&several, &mut Skipped::default()).unwrap();
    assert_eq!(tested.test.keys.unwrap().names, ["st-mary"]);
}

#[test]
fn files_that_do_not_fit_together_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let paths = hospitals(dir.path());
    let mut several = table(tempfile::tempdir().unwrap().path(), TableFormat::Csv, b"");
    several.train = TableFiles::Several(paths.clone());
    let rewrite = |from: &str, to: &str| {
        let text = hospital(1, 30, ["ward", "label", "age"]).replace(from, to);
        fs::write(&paths[1], text).unwrap();
    };
    let refused = |table: &Written| {
        let text = read(table, &mut Skipped::default()).unwrap_err().to_string();
        text.replace(&format!("{}/", dir.path().display()), "")
    };
    rewrite("age", "years");
    assert_eq!(
        refused(&several),
        "charity.csv:1: there is no column 'age', which mercy.csv has; data.ignore = [\"age\"] leaves it out"
    );
    several.ignore = vec!["age".to_string()];
    assert_eq!(
        refused(&several),
        "charity.csv:1: mercy.csv has no column 'years'; data.ignore = [\"years\"] leaves it out"
    );
    several.ignore.push("years".to_string());
    let read_both = read(&several, &mut Skipped::default()).unwrap();
    assert_eq!(read_both.table.unwrap().columns.len(), 1);
    several.ignore = vec!["nothing".to_string()];
    rewrite("", "");
    assert!(refused(&several).starts_with("mercy.csv:1: there is no column 'nothing' for data.ignore"));
    several.ignore.clear();
    rewrite("25", "many");
    assert!(refused(&several).contains("charity.csv:"), "{}", refused(&several));
    fs::write(&paths[1], "label,age,ward\n").unwrap();
    assert!(refused(&several).starts_with("charity.csv: the file has no rows"), "{}", refused(&several));
    several.train = TableFiles::Several(vec![paths[0].clone(), paths[0].clone()]);
    assert_eq!(refused(&several), "mercy.csv: the file is named twice");
    several.train = TableFiles::One(dir.path().to_path_buf());
    fs::write(dir.path().join("old.xlsx"), "x").unwrap();
    assert!(refused(&several).starts_with("old.xlsx: expected only files that end in .csv or .tsv"));
}
