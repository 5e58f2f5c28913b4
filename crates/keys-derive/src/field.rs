//! One field as a key.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Attribute, Expr, ExprLit, Field, Lit, LitStr, Meta, Result, Type, parse_quote};

/// The contents of `#[key(...)]`, and the doc comment above it.
#[derive(Default)]
pub(crate) struct Description {
    pub(crate) flatten: bool,
    pub(crate) words: Option<Type>,
    /// The name of a variant, if it is not its identifier in kebab-case.
    pub(crate) name: Option<LitStr>,
    /// Whether a method is FedAvg with all keys so marked at 0.
    pub(crate) silences: bool,
    about: String,
    /// As TOML.
    default: Option<String>,
    only: Option<(LitStr, Expr)>,
    unless: Option<(LitStr, Expr)>,
    bounds: Vec<(&'static str, Expr)>,
    texts: Vec<(&'static str, LitStr)>,
}

const BOUNDS: [&str; 4] = ["min", "above", "max", "below"];
const TEXTS: [&str; 5] = ["what", "symbol", "paper", "instead", "zero"];

impl Description {
    /// Removes our attributes from the others.
    pub(crate) fn take(attributes: &mut Vec<Attribute>) -> Result<Self> {
        let mut found = Self { about: about(attributes), ..Self::default() };
        let ours: Vec<Attribute> = attributes.extract_if(.., |attribute| attribute.path().is_ident("key")).collect();
        for attribute in ours {
            attribute.parse_nested_meta(|meta| {
                let name = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
                if name == "flatten" {
                    found.flatten = true;
                } else if name == "words" {
                    found.words = Some(meta.value()?.parse()?);
                } else if name == "name" {
                    found.name = Some(meta.value()?.parse()?);
                } else if name == "only" {
                    found.only = Some(condition(meta.input)?);
                } else if name == "unless" {
                    found.unless = Some(condition(meta.input)?);
                } else if name == "default" {
                    found.default = Some(toml(meta.value()?)?);
                } else if let Some(&bound) = BOUNDS.iter().find(|bound| **bound == name) {
                    found.bounds.push((bound, meta.value()?.parse()?));
                } else if name == "zero" && meta.value().is_ok_and(|value| value.peek(syn::Ident)) {
                    let word: syn::Ident = meta.input.parse()?;
                    if word != "fedavg" {
                        return Err(syn::Error::new(word.span(), "expected `fedavg` or a text"));
                    }
                    found.silences = true;
                } else if name == "zero" {
                    found.texts.push(("zero", meta.input.parse()?));
                } else if let Some(&text) = TEXTS.iter().find(|text| **text == name) {
                    found.texts.push((text, meta.value()?.parse()?));
                } else {
                    return Err(meta.error("unknown: see fedelity_keys::keys"));
                }
                Ok(())
            })?;
        }
        Ok(found)
    }

    /// The key as data.
    pub(crate) fn key(&self, field: &Field) -> Result<TokenStream> {
        let name = kebab(&field.ident.as_ref().map(ToString::to_string).unwrap_or_default());
        let (ty, about) = (&field.ty, &self.about);
        if about.is_empty() {
            return Err(syn::Error::new_spanned(field, "a key needs a doc comment: people read it"));
        }
        let default = match &self.default {
            None => quote!(None),
            Some(toml) => quote!(Some(#toml)),
        };
        let bounds = self.bounds.iter().map(|(bound, value)| {
            let bound = syn::Ident::new(bound, proc_macro2::Span::call_site());
            quote!(#bound: Some((#value) as f64),)
        });
        let text = |name: &str| self.texts.iter().find(|(text, _)| *text == name).map(|(_, value)| value.value());
        let [what, symbol, paper] = ["what", "symbol", "paper"].map(|name| text(name).unwrap_or_default());
        let zero = match text("zero") {
            Some(text) => quote!(Some(::fedelity_keys::AtZero::Does(#text))),
            None if self.silences => quote!(Some(::fedelity_keys::AtZero::FedAvg)),
            None => quote!(None),
        };
        let [only, unless] = [&self.only, &self.unless].map(|condition| match condition {
            Some((selector, fits)) => quote!(Some((#selector, #fits))),
            None => quote!(None),
        });
        let instead = text("instead").map_or(quote!(None), |other| quote!(Some(#other)));
        Ok(quote! {
            ::fedelity_keys::Key {
                name: #name,
                about: #about,
                value: <#ty as ::fedelity_keys::Typed>::TYPE,
                optional: <#ty as ::fedelity_keys::Typed>::OPTIONAL,
                default: #default,
                bounds: ::fedelity_keys::Bounds { #(#bounds)* ..::fedelity_keys::Bounds::NONE },
                what: #what,
                symbol: #symbol,
                paper: #paper,
                zero: #zero,
                only: #only,
                unless: #unless,
                instead: #instead,
            }
        })
    }

    /// Whether a table without this key is complete.
    pub(crate) fn may_be_absent(&self, field: &Field) -> bool {
        let Type::Path(path) = &field.ty else { return self.default.is_some() };
        self.default.is_some() || path.path.segments.last().is_some_and(|last| last.ident == "Option")
    }
}

/// `("key", predicate)`.
fn condition(input: syn::parse::ParseStream<'_>) -> Result<(LitStr, Expr)> {
    let inner;
    syn::parenthesized!(inner in input);
    let key = inner.parse()?;
    inner.parse::<syn::Token![,]>()?;
    Ok((key, inner.parse()?))
}

/// The doc comment as one text: lines joined, paragraphs separated, without the final full stop.
pub(crate) fn about(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value().trim().to_string()),
            _ => None,
        },
        _ => None,
    });
    let mut text = String::new();
    for line in lines {
        match line.as_str() {
            "" => text.push('\n'),
            line if text.is_empty() || text.ends_with('\n') => text.push_str(line),
            line => {
                text.push(' ');
                text.push_str(line);
            }
        }
    }
    text
}

/// A literal, a list or a table as TOML.
fn toml(input: syn::parse::ParseStream<'_>) -> Result<String> {
    if input.peek(syn::token::Bracket) || input.peek(syn::token::Brace) {
        return Ok(input.parse::<proc_macro2::TokenTree>()?.to_string());
    }
    Ok(match input.parse()? {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => format!("{:?}", text.value()),
        Expr::Lit(ExprLit { lit: Lit::Float(number), .. }) => number.base10_digits().to_string(),
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.base10_digits().to_string(),
        other => other.to_token_stream().to_string(),
    })
}

/// `min_size` and `MinSize` as `min-size`.
pub(crate) fn kebab(name: &str) -> String {
    let mut text = String::new();
    for (at, c) in name.trim_start_matches("r#").chars().enumerate() {
        if c.is_uppercase() && at > 0 {
            text.push('-');
        }
        text.extend(if c == '_' { "-".chars().collect() } else { c.to_lowercase().collect::<Vec<char>>() });
    }
    text
}

/// The attributes that make serde read an item the way these macros describe it.
pub(crate) fn serde() -> Vec<Attribute> {
    vec![
        parse_quote!(#[derive(Clone, Debug, PartialEq, ::fedelity_keys::serde::Deserialize)]),
        parse_quote!(#[serde(crate = "::fedelity_keys::serde", rename_all = "kebab-case")]),
    ]
}
