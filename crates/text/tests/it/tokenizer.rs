//! A tokenizer as shipped with a model: its output, and errors for bad files.

use std::path::{Path, PathBuf};

use fedelity_text::Tokenizer;

/// A small BERT-style WordPiece tokenizer.
const SMALL: &str = r###"{"version": "1.0", "truncation": null,
"padding": {"strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0,
 "pad_type_id": 0, "pad_token": "[PAD]"},
"added_tokens": [{"id": 1, "content": "[CLS]", "single_word": false, "lstrip": false, "rstrip": false,
 "normalized": false, "special": true}, {"id": 2, "content": "[SEP]", "single_word": false, "lstrip": false,
 "rstrip": false, "normalized": false, "special": true}],
"normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
 "lowercase": true}, "pre_tokenizer": {"type": "BertPreTokenizer"},
"post_processor": {"type": "TemplateProcessing",
 "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
  {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
 "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
 "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]},
  "[SEP]": {"id": "[SEP]", "ids": [2], "tokens": ["[SEP]"]}}},
"decoder": null, "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
 "max_input_chars_per_word": 100,
 "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "good": 3, "film": 4, "##s": 5, "a": 6}}}"###;

fn place(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|t| (*t).to_owned()).collect()
}

#[test]
fn special_tokens_no_padding_and_a_longest_text() {
    let (_folder, path) = place(SMALL);
    let config = Path::new("config.json");
    let tokenizer = Tokenizer::open(&path, 7, config, 5).unwrap();
    let tokens = tokenizer.encode(&owned(&["Good films", "", "a a a a a a", "zzz"])).unwrap();
    assert_eq!(tokens.ids, [1, 3, 4, 5, 2, 1, 2, 1, 6, 6, 6, 2, 1, 0, 2]);
    assert_eq!(tokens.starts, [0, 5, 7, 12, 15]);
    assert_eq!(tokens.len(), 4);
    let message = Tokenizer::open(&path, 6, config, 5).unwrap_err().to_string();
    for part in ["tokenizer.json", "token \"a\" has ID 6", "6 tokens", "config.json"] {
        assert!(message.contains(part), "{message}");
    }
    let message = Tokenizer::open(&path, 7, config, 2).unwrap_err().to_string();
    assert!(message.contains("tokenizer.json") && message.contains("2 special tokens"), "{message}");
}

#[test]
fn special_tokens_outside_the_vocabulary_are_refused() {
    let config = Path::new("config.json");
    for (own, id) in [("\"ids\": [2]", 7u32), ("\"ids\": [1]", 4_000_000_000)] {
        let (_folder, path) = place(&SMALL.replace(own, &format!("\"ids\": [{id}]")));
        let message = Tokenizer::open(&path, 7, config, 5).unwrap_err().to_string();
        assert!(message.contains(&format!("has ID {id}, but the model has 7 tokens")), "{message}");
    }
    // A token that only some texts have.
    let added = SMALL.replace(
        "\"added_tokens\": [",
        "\"added_tokens\": [{\"id\": 9, \"content\": \"rare\", \
        \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": false}, ",
    );
    let (_folder, path) = place(&added);
    assert!(Tokenizer::open(&path, 7, config, 5).is_err());
}

#[test]
fn bad_files() {
    let config = Path::new("config.json");
    for text in ["", "{}", "{\"version\": 3}", &SMALL[..SMALL.len() / 2]] {
        let (_folder, path) = place(text);
        let message = Tokenizer::open(&path, 7, config, 5).unwrap_err().to_string();
        assert!(message.contains("tokenizer.json"), "{message}");
    }
    assert!(Tokenizer::open(Path::new("/none/tokenizer.json"), 7, config, 5).unwrap_err().to_string().contains("none"));
}

/// The real MiniLM tokenizer, if its folder exists: the tokens match those of `transformers`.
#[test]
fn minilm_agrees_with_transformers() {
    let Some(folder) = std::env::var_os("FEDELITY_DATA").map(|d| Path::new(&d).join("minilm")).filter(|d| d.is_dir())
    else {
        println!("skipped: FEDELITY_DATA names no folder with minilm");
        return;
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nn/tests/data/minilm.json");
    let expected: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let texts: Vec<String> =
        expected["texts"].as_array().unwrap().iter().map(|t| t.as_str().unwrap().to_owned()).collect();
    let tokenizer = Tokenizer::open(&folder.join("tokenizer.json"), 30_522, &folder.join("config.json"), 128).unwrap();
    let tokens = tokenizer.encode(&texts).unwrap();
    for (i, ids) in expected["ids"].as_array().unwrap().iter().enumerate() {
        let found = &tokens.ids[tokens.starts[i] as usize..tokens.starts[i + 1] as usize];
        let ids: Vec<u32> = ids.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect();
        assert_eq!(found, ids, "{:?}", texts[i]);
    }
}
