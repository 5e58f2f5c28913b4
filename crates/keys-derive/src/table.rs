//! `#[keys]`: a table of keys, or a choice between several.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::Parser;
use syn::{Data, DataEnum, DataStruct, DeriveInput, Error, Expr, Fields, LitStr, Result, meta, parse_quote};

use crate::field::{Description, about, kebab, serde};

pub(crate) fn expand(arguments: TokenStream, mut input: DeriveInput) -> Result<TokenStream> {
    input.attrs.extend(serde());
    match input.data.clone() {
        Data::Struct(data) => {
            let mut check: Option<Expr> = None;
            let parser = meta::parser(|meta| {
                if !meta.path.is_ident("check") {
                    return Err(meta.error("expected check"));
                }
                check = Some(meta.value()?.parse()?);
                Ok(())
            });
            parser.parse2(arguments)?;
            Ok(structure(&mut input, data, check)?.0)
        }
        Data::Enum(data) => selection(arguments, input, data),
        Data::Union(_) => Err(Error::new_spanned(input, "expected a struct or an enum")),
    }
}

/// The struct with its keys, and the fields that silence a method.
pub(crate) fn structure(
    input: &mut DeriveInput,
    mut data: DataStruct,
    check: Option<Expr>,
) -> Result<(TokenStream, Vec<syn::Ident>)> {
    let (mut keys, mut selectors, mut silencing, mut complete) = (Vec::new(), Vec::new(), Vec::new(), true);
    let mut verified = Vec::new();
    for field in &mut data.fields {
        let description = Description::take(&mut field.attrs)?;
        if description.flatten {
            let ty = &field.ty;
            selectors.push(quote!(<#ty as ::fedelity_keys::Selected>::SELECTOR));
            field.attrs.push(parse_quote!(#[serde(flatten)]));
            let ident = &field.ident;
            verified.push(quote!(::fedelity_keys::Selected::verify(&self.#ident)?;));
            continue;
        }
        keys.push(description.key(field)?);
        if let Some(ident) = &field.ident {
            let name = kebab(&ident.to_string());
            let verify = quote!(::fedelity_keys::Typed::verify(&self.#ident));
            verified.push(quote!(#verify.map_err(|error| error.below(#name))?;));
        }
        complete &= description.may_be_absent(field);
        if description.silences {
            silencing.extend(field.ident.clone());
        }
    }
    let item = &input.ident;
    let default = complete.then(|| {
        quote! {
            impl Default for #item {
                fn default() -> Self {
                    ::fedelity_keys::defaults()
                }
            }
        }
    });
    let check = check.map(|check| {
        quote! {
            fn check(&self) -> Result<(), ::fedelity_keys::KeyError> {
                #check(self)
            }
        }
    });
    let implementation = quote! {
        impl ::fedelity_keys::Keys for #item {
            const SCHEMA: &'static ::fedelity_keys::Schema =
                &::fedelity_keys::Schema { keys: &[#(#keys),*], selectors: &[#(#selectors),*] };
            #check
        }
        impl ::fedelity_keys::Typed for #item {
            const TYPE: ::fedelity_keys::ValueType =
                ::fedelity_keys::ValueType::Table(<Self as ::fedelity_keys::Keys>::SCHEMA);
            fn verify(&self) -> Result<(), ::fedelity_keys::KeyError> {
                #(#verified)*
                ::fedelity_keys::Keys::check(self)
            }
        }
        #default
    };
    input.data = Data::Struct(data);
    Ok((quote!(#input #implementation), silencing))
}

/// An enum whose tag is a key and whose variants have their own keys.
fn selection(arguments: TokenStream, mut input: DeriveInput, mut data: DataEnum) -> Result<TokenStream> {
    let (mut tag, mut default): (Option<LitStr>, Option<LitStr>) = (None, None);
    let parser = meta::parser(|meta| {
        let value = Some(meta.value()?.parse()?);
        match () {
            () if meta.path.is_ident("tag") => tag = value,
            () if meta.path.is_ident("default") => default = value,
            () => return Err(meta.error("expected tag or default")),
        }
        Ok(())
    });
    parser.parse2(arguments)?;
    let tag = tag.ok_or_else(|| Error::new_spanned(&input, "an enum of keys needs tag = \"...\""))?;
    let default = default.map_or(quote!(None), |default| {
        let toml = format!("{:?}", default.value());
        quote!(Some(#toml))
    });
    let selector_about = about(&input.attrs);
    input.attrs.push(parse_quote!(#[serde(tag = #tag, rename_all_fields = "kebab-case")]));
    let (mut variants, mut names, mut verified) = (Vec::new(), Vec::new(), Vec::new());
    for variant in &mut data.variants {
        let description = Description::take(&mut variant.attrs)?;
        let about = about(&variant.attrs);
        let words = match (description.words, description.name) {
            (Some(words), _) => {
                variant.attrs.push(parse_quote!(#[serde(untagged)]));
                // The table has the word, or serde could not read it.
                let (ident, key) = (&variant.ident, syn::Ident::new(&tag.value(), tag.span()));
                names.push(quote!(Self::#ident(inner) => <#words>::name(inner.#key),));
                quote!(<#words as ::fedelity_keys::Choice>::WORDS)
            }
            (None, name) => {
                let name = name.map_or_else(|| kebab(&variant.ident.to_string()), |name| name.value());
                variant.attrs.push(parse_quote!(#[serde(rename = #name)]));
                let ident = &variant.ident;
                names.push(quote!(Self::#ident { .. } => #name,));
                quote!(&[#name])
            }
        };
        let ident = &variant.ident;
        let keys = match &mut variant.fields {
            Fields::Unit => {
                verified.push(quote!(Self::#ident => Ok(()),));
                quote!(&[])
            }
            Fields::Unnamed(inner) => match inner.unnamed.first() {
                Some(field) if inner.unnamed.len() == 1 => {
                    let ty = &field.ty;
                    verified.push(quote!(Self::#ident(inner) => ::fedelity_keys::Typed::verify(inner),));
                    quote!(<#ty as ::fedelity_keys::Keys>::SCHEMA.keys)
                }
                _ => return Err(Error::new_spanned(variant, "expected one struct of keys")),
            },
            Fields::Named(fields) => {
                let (mut keys, mut checks, mut idents) = (Vec::new(), Vec::new(), Vec::new());
                for field in &mut fields.named {
                    keys.push(Description::take(&mut field.attrs)?.key(field)?);
                    if let Some(field) = &field.ident {
                        let name = kebab(&field.to_string());
                        let verify = quote!(::fedelity_keys::Typed::verify(#field));
                        checks.push(quote!(#verify.map_err(|error| error.below(#name))?;));
                        idents.push(field.clone());
                    }
                }
                verified.push(quote!(Self::#ident { #(#idents),* } => { #(#checks)* Ok(()) }));
                quote!(&[#(#keys),*])
            }
        };
        variants.push(quote!(::fedelity_keys::Variant { words: #words, about: #about, keys: #keys }));
    }
    let item = &input.ident;
    let implementation = quote! {
        impl #item {
            /// The name, as a configuration writes it.
            pub fn name(&self) -> &'static str {
                match self {
                    #(#names)*
                }
            }
        }
        impl ::fedelity_keys::Selected for #item {
            const SELECTOR: ::fedelity_keys::Selector = ::fedelity_keys::Selector {
                name: #tag,
                about: #selector_about,
                default: #default,
                variants: &[#(#variants),*],
            };
            fn verify(&self) -> Result<(), ::fedelity_keys::KeyError> {
                match self {
                    #(#verified)*
                }
            }
        }
    };
    input.data = Data::Enum(data);
    Ok(quote!(#input #implementation))
}
