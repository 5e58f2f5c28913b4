//! `#[method]`: a federated method and its entry in the registry.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::Parser;
use syn::{Data, DeriveInput, Error, Expr, Fields, LitStr, Result, Type, meta, parse_quote};

use crate::field::{about, serde};
use crate::table::structure;

pub(crate) fn expand(arguments: TokenStream, mut input: DeriveInput) -> Result<TokenStream> {
    let (mut id, mut title): (Option<LitStr>, Option<LitStr>) = (None, None);
    let (mut reference, mut equation): (Option<LitStr>, Option<LitStr>) = (None, None);
    let mut helps: Option<LitStr> = None;
    let (mut identity, mut check): (Option<Expr>, Option<Expr>) = (None, None);
    let parser = meta::parser(|meta| {
        match () {
            () if meta.path.is_ident("id") => id = Some(meta.value()?.parse()?),
            () if meta.path.is_ident("title") => title = Some(meta.value()?.parse()?),
            () if meta.path.is_ident("reference") => reference = Some(meta.value()?.parse()?),
            () if meta.path.is_ident("equation") => equation = Some(meta.value()?.parse()?),
            () if meta.path.is_ident("helps") => helps = Some(meta.value()?.parse()?),
            () if meta.path.is_ident("identity") => identity = Some(meta.value()?.parse()?),
            () if meta.path.is_ident("check") => check = Some(meta.value()?.parse()?),
            () => return Err(meta.error("expected id, title, reference, equation, helps, identity or check")),
        }
        Ok(())
    });
    parser.parse2(arguments)?;
    let missing = |what: &str| Error::new_spanned(&input.ident, format!("a method needs {what} = \"...\""));
    let (id, reference) = (id.ok_or_else(|| missing("id"))?, reference.ok_or_else(|| missing("reference"))?);
    let (title, equation) = (title.ok_or_else(|| missing("title"))?, equation.ok_or_else(|| missing("equation"))?);
    let helps = helps.ok_or_else(|| missing("helps"))?;
    let summary = about(&input.attrs);
    let Data::Struct(data) = input.data.clone() else {
        return Err(Error::new_spanned(&input.ident, "a method is a struct of hyper-parameters"));
    };
    input.attrs.extend(serde());
    let item = input.ident.clone();
    let wraps = matches!(&data.fields, Fields::Unnamed(fields) if fields.unnamed.len() == 1);
    let (table, silencing) = match data.fields.iter().next() {
        Some(inner) if wraps => (wrapper(input, &inner.ty), Vec::new()),
        _ => structure(&mut input, data, check)?,
    };
    let identity = match identity {
        Some(case) => quote!(crate::registry::Identity::#case),
        None if silencing.is_empty() => {
            return Err(Error::new_spanned(&item, "no key says zero = fedavg: identity must say where it is FedAvg"));
        }
        None => quote!(crate::registry::Identity::KeysAtZero),
    };
    let is_off = match silencing.is_empty() {
        true if wraps => quote!(crate::registry::Hyper::is_off(&self.0)),
        true => quote!(false),
        false => quote!(#(::fedelity_keys::is_zero(self.#silencing))&&*),
    };
    Ok(quote! {
        #table
        impl ::fedelity_fl::Named for #item {
            fn name(&self) -> &'static str {
                #id
            }
        }
        impl crate::registry::Hyper for #item {
            const ENTRY: crate::registry::Entry =
                crate::registry::Entry::new::<Self>(#id, #title, #summary, #reference, #equation, #helps, #identity);
            fn is_off(&self) -> bool {
                #is_off
            }
        }
    })
}

/// A struct around another method, with that method's keys.
fn wrapper(mut input: DeriveInput, inner: &Type) -> TokenStream {
    input.attrs.push(parse_quote!(#[derive(Default)]));
    input.attrs.push(parse_quote!(#[serde(transparent)]));
    let item = &input.ident;
    quote! {
        #input
        impl ::fedelity_keys::Keys for #item {
            const SCHEMA: &'static ::fedelity_keys::Schema = <#inner as ::fedelity_keys::Keys>::SCHEMA;
        }
        impl ::fedelity_keys::Typed for #item {
            const TYPE: ::fedelity_keys::ValueType =
                ::fedelity_keys::ValueType::Table(<#inner as ::fedelity_keys::Keys>::SCHEMA);
            fn verify(&self) -> Result<(), ::fedelity_keys::KeyError> {
                ::fedelity_keys::Typed::verify(&self.0)
            }
        }
    }
}
