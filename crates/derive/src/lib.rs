//! `#[derive(Table)]` of the database Hyades: from a struct to a table's description, typed columns
//! and indexes. `hyades::TableRow` documents the attributes; programs use `hyades::Table`.

mod description;

use description::{Description, FieldOf, IndexOf};
use proc_macro::TokenStream;
use proc_macro2::{Ident, TokenStream as Tokens};
use quote::{format_ident, quote};
use syn::{DeriveInput, GenericParam, Lifetime, parse_macro_input};

/// Implements `hyades::TableRow` for a struct with named fields, see there.
#[proc_macro_derive(Table, attributes(table, key, index, unique, default_value))]
pub fn derive_table(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    Description::of(&input)
        .and_then(|description| expand(&input, &description))
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}

/// The lifetime of a borrowing struct: the only permitted generic parameter.
fn lifetime(input: &DeriveInput) -> syn::Result<Option<&Lifetime>> {
    let mut found = None;
    for parameter in &input.generics.params {
        match parameter {
            GenericParam::Lifetime(lifetime) if found.is_none() => {
                found = Some(&lifetime.lifetime);
            }
            other => {
                let text = "a table's struct has at most one lifetime, and no other parameters";
                return Err(syn::Error::new_spanned(other, text));
            }
        }
    }
    Ok(found)
}

fn expand(input: &DeriveInput, table: &Description) -> syn::Result<Tokens> {
    let name = &input.ident;
    let (impl_generics, type_generics, _) = input.generics.split_for_impl();
    let read = match lifetime(input)? {
        Some(_) => quote!(#name<'t>),
        None => quote!(#name),
    };
    let constants = column_constants(table).chain(index_constants(input, table)?);
    let key = fields_type(table, &table.key);
    let schema = schema(table);
    let fields: Vec<_> = table.fields.iter().map(|field| &field.name).collect();
    let reads = table.fields.iter().enumerate().map(|(at, field)| {
        let (name, kind, at) = (&field.name, &field.kind, at as u16);
        quote!(#name: row.read::<#kind>(#at))
    });
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #name #type_generics {
            #(#constants)*
        }

        #[automatically_derived]
        impl #impl_generics ::hyades::TableRow for #name #type_generics {
            type Read<'t> = #read;
            type Key = #key;

            fn schema() -> ::hyades::Schema {
                #schema
            }

            #[inline]
            fn read<'t>(row: &::hyades::Row<'t>) -> Self::Read<'t> {
                #name { #(#reads),* }
            }

            #[inline]
            fn with_values<T>(
                &self,
                with: impl ::core::ops::FnOnce(&[::hyades::Value<'_>]) -> T,
            ) -> T {
                with(&[#(::hyades::Field::value(&self.#fields)),*])
            }
        }
    })
}

/// The name of a column's constant.
fn constant_of(field: &FieldOf) -> Ident {
    format_ident!("{}", field.column().to_uppercase(), span = field.name.span())
}

/// A constant for each column. A program need not use all constants.
fn column_constants(table: &Description) -> impl Iterator<Item = Tokens> {
    table.fields.iter().enumerate().map(|(at, field)| {
        let (kind, visibility, at) = (&field.kind, &field.visibility, at as u16);
        let constant = constant_of(field);
        let text = format!("The column `{}`.", field.column());
        quote! {
            #[doc = #text]
            #[allow(dead_code)]
            #visibility const #constant: ::hyades::Column<<#kind as ::hyades::Field>::Column> =
                ::hyades::Column::at(#at);
        }
    })
}

/// A constant for each index.
fn index_constants(input: &DeriveInput, table: &Description) -> syn::Result<Vec<Tokens>> {
    let (visibility, mut constants) = (&input.vis, Vec::new());
    for (at, index) in table.indexes.iter().enumerate() {
        let constant = format_ident!("{}", index.name.to_uppercase(), span = index.span);
        let clashes = table
            .fields
            .iter()
            .any(|field| field.column().to_uppercase() == index.name.to_uppercase());
        if clashes {
            let text = format!("the index {:?} has the name of a column", index.name);
            return Err(syn::Error::new(index.span, text));
        }
        let (fields, at) = (fields_type(table, &index.fields), at as u16);
        let text = format!("The index `{}`.", index.name);
        constants.push(quote! {
            #[doc = #text]
            #[allow(dead_code)]
            #visibility const #constant: ::hyades::TypedIndex<Self, #fields> =
                ::hyades::TypedIndex::nth(#at);
        });
    }
    Ok(constants)
}

/// The tuple of the types of `fields`.
fn fields_type(table: &Description, fields: &[usize]) -> Tokens {
    let kinds = fields.iter().map(|at| &table.fields[*at].kind);
    quote!((#(#kinds,)*))
}

/// The expression for the schema.
fn schema(table: &Description) -> Tokens {
    let name = &table.name;
    let columns = table.fields.iter().map(|field| {
        let (column, kind) = (field.column(), &field.kind);
        if let Some(value) = &field.default {
            // The column's constant checks the value's type.
            let constant = constant_of(field);
            return quote! {
                let value = Self::#constant.set(#value).value;
                let schema = if <#kind as ::hyades::Field>::NULLABLE {
                    schema.nullable_with_default(
                        #column,
                        <#kind as ::hyades::Field>::KIND,
                        value,
                    )
                } else {
                    schema.column_with_default(
                        #column,
                        <#kind as ::hyades::Field>::KIND,
                        value,
                    )
                };
            };
        }
        quote! {
            let schema = if <#kind as ::hyades::Field>::NULLABLE {
                schema.nullable(#column, <#kind as ::hyades::Field>::KIND)
            } else {
                schema.column(#column, <#kind as ::hyades::Field>::KIND)
            };
        }
    });
    let names = |fields: &[usize]| {
        let names = fields.iter().map(|at| table.fields[*at].column());
        quote!(&[#(#names),*])
    };
    let key = (!table.key.is_empty()).then(|| {
        let names = names(&table.key);
        quote!(.primary_key(#names))
    });
    let hash = table.hash.then(|| quote!(.hash()));
    let indexes = table.indexes.iter().map(|IndexOf { name, fields, unique, .. }| {
        let (names, how) = (names(fields), if *unique { "unique" } else { "index" });
        let how = format_ident!("{how}");
        quote!(.#how(#name, #names))
    });
    quote! {
        let schema = ::hyades::Schema::new(#name);
        #(#columns)*
        schema #key #hash #(#indexes)*
    }
}
