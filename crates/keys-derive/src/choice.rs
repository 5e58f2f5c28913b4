//! `#[derive(Choice)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, LitStr, Result};

use crate::field::kebab;

pub(crate) fn expand(input: DeriveInput) -> Result<TokenStream> {
    let item = &input.ident;
    let Data::Enum(data) = &input.data else { return Err(Error::new_spanned(&input, "a choice is an enum")) };
    let mut names = Vec::new();
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            return Err(Error::new_spanned(variant, "the variants of a choice have no fields"));
        }
        let own = variant.attrs.iter().find(|attribute| attribute.path().is_ident("choice"));
        names.push(match own {
            Some(attribute) => attribute.parse_args::<LitStr>()?.value(),
            None => kebab(&variant.ident.to_string()),
        });
    }
    let (variants, n) = (data.variants.iter().map(|variant| &variant.ident).collect::<Vec<_>>(), names.len());
    Ok(quote! {
        impl #item {
            /// All of them, in order.
            pub const ALL: [Self; #n] = [#(Self::#variants),*];
            /// The names of all, as a configuration writes them.
            pub const NAMES: [&'static str; #n] = [#(#names),*];

            /// The name, as a configuration writes it.
            pub const fn name(self) -> &'static str {
                match self {
                    #(Self::#variants => #names,)*
                }
            }

            /// By its name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    #(#names => Some(Self::#variants),)*
                    _ => None,
                }
            }
        }

        impl ::fedelity_keys::Choice for #item {
            const WORDS: &'static [&'static str] = &Self::NAMES;
        }

        impl ::fedelity_keys::Typed for #item {
            const TYPE: ::fedelity_keys::ValueType = ::fedelity_keys::ValueType::Word(&Self::NAMES);
        }

        impl ::fedelity_keys::serde::Serialize for #item {
            fn serialize<S: ::fedelity_keys::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> ::fedelity_keys::serde::Deserialize<'de> for #item {
            fn deserialize<D: ::fedelity_keys::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = <String as ::fedelity_keys::serde::Deserialize>::deserialize(deserializer)?;
                let unknown = || ::fedelity_keys::serde::de::Error::unknown_variant(&name, &Self::NAMES);
                Self::from_name(&name).ok_or_else(unknown)
            }
        }
    })
}
