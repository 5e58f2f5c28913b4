//! `#[method]`: a federated method and its entry in the registry.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::Parser;
use syn::{Data, DeriveInput, Error, Expr, LitStr, Result, meta};

use crate::field::{about, serde};
use crate::table::structure;

pub(crate) fn expand(arguments: TokenStream, mut input: DeriveInput) -> Result<TokenStream> {
    let (mut id, mut reference, mut equation): (Option<LitStr>, Option<LitStr>, Option<LitStr>) = (None, None, None);
    let (mut identity, mut check): (Option<Expr>, Option<Expr>) = (None, None);
    let parser = meta::parser(|meta| {
        match () {
            () if meta.path.is_ident("id") => id = Some(meta.value()?.parse()?),
            () if meta.path.is_ident("reference") => reference = Some(meta.value()?.parse()?),
            () if meta.path.is_ident("equation") => equation = Some(meta.value()?.parse()?),
            () if meta.path.is_ident("identity") => identity = Some(meta.value()?.parse()?),
            () if meta.path.is_ident("check") => check = Some(meta.value()?.parse()?),
            () => return Err(meta.error("expected id, reference, equation, identity or check")),
        }
        Ok(())
    });
    parser.parse2(arguments)?;
    let missing = |what: &str| Error::new_spanned(&input.ident, format!("a method needs {what} = \"...\""));
    let (id, reference) = (id.ok_or_else(|| missing("id"))?, reference.ok_or_else(|| missing("reference"))?);
    let equation = equation.ok_or_else(|| missing("equation"))?;
    let summary = about(&input.attrs);
    let Data::Struct(data) = input.data.clone() else {
        return Err(Error::new_spanned(&input.ident, "a method is a struct of hyper-parameters"));
    };
    input.attrs.extend(serde());
    let item = input.ident.clone();
    let (table, silencing) = structure(&mut input, data, check)?;
    let identity = match identity {
        Some(case) => quote!(crate::registry::Identity::#case),
        None if silencing.is_empty() => {
            return Err(Error::new_spanned(&item, "no key says zero = fedavg: identity must say where it is FedAvg"));
        }
        None => quote!(crate::registry::Identity::KeysAtZero),
    };
    let is_off = (!silencing.is_empty()).then(|| {
        quote! {
            impl #item {
                /// Whether every coefficient that makes it differ from FedAvg is 0.
                #[allow(dead_code)]
                fn is_off(&self) -> bool {
                    #(::fedelity_keys::is_zero(self.#silencing))&&*
                }
            }
        }
    });
    Ok(quote! {
        #table
        #is_off
        impl ::fedelity_fl::Named for #item {
            fn name(&self) -> &'static str {
                #id
            }
        }
        impl crate::registry::Hyper for #item {
            const ENTRY: crate::registry::Entry =
                crate::registry::Entry::new::<Self>(#id, #summary, #reference, #equation, #identity);
        }
    })
}
