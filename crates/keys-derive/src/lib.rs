//! The macros of `fedelity-keys`: [`macro@keys`] for a table of keys, [`macro@Choice`] for a choice of words,
//! [`macro@method`] for a federated method.

mod choice;
mod field;
mod method;
mod table;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a struct a table of keys, or an enum a choice between several such tables.
///
/// The struct becomes readable by serde in kebab-case. Each field is a key: its doc comment is the user documentation,
/// and `#[key(...)]` has the rest:
///
/// - `default = 0.01`: the value if none is given. A key without a default is optional if its type is an `Option`, and
///   required otherwise.
/// - `min`, `above`, `max`, `below`: the bounds of a number, or of every number of a list.
/// - `what = "a path"`: what is expected, in words, if it does not follow from the type.
/// - `symbol`, `paper`, `zero`: its symbol and value in the paper, and what it does at 0 (`zero = fedavg`: with all
///   keys so marked at 0, the method is FedAvg).
/// - `only("name", f)`: the key exists only if `f` holds for the value of another key, which must precede it. Its type
///   is an `Option`.
/// - `unless("name", f)`: its default is omitted if `f` holds for the value of another key.
/// - `instead = "name"`: the key replaces another one, and only one of them may be given.
/// - `flatten`: the field is an enum of this kind, whose keys are in the same table.
///
/// `#[keys(check = function)]` names a function that rejects invalid combinations of keys.
///
/// An enum takes `#[keys(tag = "kind", default = "iid")]`; each variant has the keys of its fields, or of the struct it
/// contains. `#[key(name = "fedavgm")]` renames a variant; `#[key(words = Type)]` makes one stand for several words,
/// where `Type` is a `Choice`.
#[proc_macro_attribute]
pub fn keys(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let input = parse_macro_input!(item as DeriveInput);
    table::expand(arguments.into(), input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// One of several words: the names of the variants in kebab-case, or `#[choice("name")]`.
///
/// Generates `NAMES`, `ALL`, `name()`, `from_name()`, and serde's traits.
#[proc_macro_derive(Choice, attributes(choice))]
pub fn choice(item: TokenStream) -> TokenStream {
    let input = parse_macro_input!(item as DeriveInput);
    choice::expand(input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct of hyper-parameters a federated method with a registry entry.
///
/// It includes [`macro@keys`], and takes `id`, `reference`, `equation`, `helps` (when it does, and who measured it) and, if
/// no key is marked `zero = fedavg`, `identity`: the case in which the method is FedAvg. The struct's doc comment is its
/// summary. With all keys marked `zero = fedavg` at 0, the registry builds FedAvg instead. `check` is as for
/// [`macro@keys`]. A struct around another method, `struct Mine(Other)`, has that method's keys.
#[proc_macro_attribute]
pub fn method(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let input = parse_macro_input!(item as DeriveInput);
    method::expand(arguments.into(), input).unwrap_or_else(syn::Error::into_compile_error).into()
}
