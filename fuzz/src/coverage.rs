//! The target of libFuzzer: the reader that `FEDELITY_READER` names.

#![no_main]

use std::cell::RefCell;

use fedelity_fuzz::{READERS, Read};
use libfuzzer_sys::fuzz_target;

thread_local! {
    static READ: RefCell<Option<Read>> = const { RefCell::new(None) };
}

fn open() -> Read {
    let name = std::env::var("FEDELITY_READER").expect("FEDELITY_READER names a reader");
    let reader = READERS.iter().find(|reader| reader.name == name).unwrap_or_else(|| panic!("no reader {name}"));
    (reader.open)()
}

fuzz_target!(|bytes: &[u8]| {
    READ.with_borrow_mut(|read| {
        let _ = read.get_or_insert_with(open)(bytes);
    });
});
