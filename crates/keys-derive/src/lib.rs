//! The macros of `fedelity-keys`: [`macro@keys`] for a table of keys, [`macro@Choice`] for a word out of several,
//! [`macro@method`] for a federated method.

mod choice;
mod field;
mod method;
mod table;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a struct a table of keys, or an enum a choice between several such tables.
///
/// The struct becomes readable by serde in kebab-case. Each field is a key: its doc comment is what people read about
/// it, and `#[key(...)]` has the rest:
///
/// - `default = 0.01`: its value when it is not given. A key without one is optional if its type is an `Option`, and
///   required otherwise.
/// - `min`, `above`, `max`, `below`: the bounds of a number, or of every number of a list.
/// - `what = "a path"`: what is expected, in words, where the type does not say it.
/// - `symbol`, `paper`, `zero`: what a paper calls it, its value there, and what it does at 0 (`zero = fedavg`: with
///   this and all others so marked at 0, the method is FedAvg).
/// - `only("name", f)`: it is there only if `f` says so of the value of another key, which stands before it. Its type is
///   an `Option`.
/// - `unless("name", f)`: its default is left out if `f` says so of the value of another key.
/// - `flatten`: the field is an enum of this kind, whose keys stand in the same table.
///
/// `#[keys(check = function)]` names a function that refuses what no key by itself can.
///
/// An enum takes `#[keys(tag = "kind", default = "iid")]`; each variant has the keys of its fields, or of the struct in
/// it. `#[key(name = "fedavgm")]` renames a variant; one that stands for several words says `#[key(words = Type)]`, where
/// `Type` is a `Choice`.
#[proc_macro_attribute]
pub fn keys(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let input = parse_macro_input!(item as DeriveInput);
    table::expand(arguments.into(), input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// One word out of several: the names of the variants in kebab-case, or `#[choice("name")]`.
///
/// Gives `NAMES`, `ALL`, `name()`, `from_name()`, and serde's traits.
#[proc_macro_derive(Choice, attributes(choice))]
pub fn choice(item: TokenStream) -> TokenStream {
    let input = parse_macro_input!(item as DeriveInput);
    choice::expand(input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a struct of hyper-parameters a federated method with an entry in the registry.
///
/// It is [`macro@keys`], and takes `id`, `reference`, `equation` and, where no key says `zero = fedavg`, `identity`: the
/// case in which the method is FedAvg. The struct's doc comment is its summary. With all keys at 0 that say
/// `zero = fedavg`, the registry builds FedAvg in its place. `check` is as for [`macro@keys`]. A struct around another
/// method, `struct Mine(Other)`, has that method's keys.
#[proc_macro_attribute]
pub fn method(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let input = parse_macro_input!(item as DeriveInput);
    method::expand(arguments.into(), input).unwrap_or_else(syn::Error::into_compile_error).into()
}
