//! Reads a struct and the attributes.

use proc_macro2::{Ident, Span};
use syn::ext::IdentExt;
use syn::meta::ParseNestedMeta;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Expr, Fields, LitStr, Token, Type, Visibility, parenthesized};

/// A table, as described by a struct.
pub struct Description {
    pub name: String,
    pub hash: bool,
    pub fields: Vec<FieldOf>,
    /// The primary key: positions in `fields`.
    pub key: Vec<usize>,
    pub indexes: Vec<IndexOf>,
}

/// A field: a column.
pub struct FieldOf {
    pub name: Ident,
    pub kind: Type,
    pub visibility: Visibility,
    /// The column's value in rows written without the column.
    pub default: Option<Expr>,
}

impl FieldOf {
    /// The column's name: the field's, without `r#`.
    pub fn column(&self) -> String {
        self.name.unraw().to_string()
    }
}

/// A secondary index.
pub struct IndexOf {
    pub name: String,
    pub fields: Vec<usize>,
    pub unique: bool,
    pub span: Span,
}

impl Description {
    pub fn of(input: &DeriveInput) -> syn::Result<Description> {
        let text = "a table is described by a struct with named fields";
        let Data::Struct(data) = &input.data else {
            return Err(syn::Error::new_spanned(&input.ident, text));
        };
        let Fields::Named(named) = &data.fields else {
            return Err(syn::Error::new_spanned(&input.ident, text));
        };
        let mut table = Description {
            name: snake_case(&input.ident.unraw().to_string()),
            hash: false,
            fields: Vec::new(),
            key: Vec::new(),
            indexes: Vec::new(),
        };
        for (at, field) in named.named.iter().enumerate() {
            let name = field.ident.clone().expect("a named field");
            let mut default = None;
            for attribute in &field.attrs {
                let path = attribute.path();
                let is_index = path.is_ident("index") || path.is_ident("unique");
                if path.is_ident("key") || is_index {
                    attribute.meta.require_path_only()?;
                }
                if path.is_ident("default_value") {
                    let value = attribute.parse_args::<Expr>()?;
                    if default.replace(value).is_some() {
                        return Err(syn::Error::new_spanned(path, "the default is given twice"));
                    }
                } else if path.is_ident("key") {
                    table.key.push(at);
                } else if is_index {
                    table.indexes.push(IndexOf {
                        name: format!("by_{}", name.unraw()),
                        fields: vec![at],
                        unique: path.is_ident("unique"),
                        span: attribute.span(),
                    });
                }
            }
            let (kind, visibility) = (field.ty.clone(), field.vis.clone());
            table.fields.push(FieldOf { name, kind, visibility, default });
        }
        for attribute in input.attrs.iter().filter(|a| a.path().is_ident("table")) {
            attribute.parse_nested_meta(|meta| table.read(&meta))?;
        }
        table.check(input)?;
        Ok(table)
    }

    /// Reads an item of `#[table(..)]`.
    fn read(&mut self, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        if meta.path.is_ident("name") {
            self.name = meta.value()?.parse::<LitStr>()?.value();
            return Ok(());
        }
        if meta.path.is_ident("hash") {
            self.hash = true;
            return Ok(());
        }
        if meta.path.is_ident("key") {
            if !self.key.is_empty() {
                return Err(meta.error("the primary key is given twice"));
            }
            self.key = self.fields_in(meta)?;
            return Ok(());
        }
        let unique = meta.path.is_ident("unique");
        if !unique && !meta.path.is_ident("index") {
            return Err(meta.error(
                "known are name = \"..\", hash, key(field, ..), index(name(field, ..)), \
                 unique(name(field, ..))",
            ));
        }
        meta.parse_nested_meta(|index| {
            let name = index.path.require_ident()?;
            let fields = self.fields_in(&index)?;
            let (name, span) = (name.unraw().to_string(), name.span());
            self.indexes.push(IndexOf { name, fields, unique, span });
            Ok(())
        })
    }

    /// Reads the names of fields in parentheses.
    fn fields_in(&self, meta: &ParseNestedMeta<'_>) -> syn::Result<Vec<usize>> {
        let content;
        parenthesized!(content in meta.input);
        let names = Punctuated::<Ident, Token![,]>::parse_terminated(&content)?;
        let position = |name: &Ident| {
            let found = self.fields.iter().position(|field| field.name == *name);
            found.ok_or_else(|| syn::Error::new_spanned(name, "the struct has no such field"))
        };
        let fields: Vec<usize> = names.iter().map(position).collect::<syn::Result<_>>()?;
        if fields.is_empty() {
            return Err(meta.error("a key or an index has at least one field"));
        }
        Ok(fields)
    }

    fn check(&self, input: &DeriveInput) -> syn::Result<()> {
        let fails = |text: &str| Err(syn::Error::new_spanned(&input.ident, text));
        if self.key.len() > 6 || self.indexes.iter().any(|index| index.fields.len() > 6) {
            return fails("a key or an index of a typed table has at most six fields");
        }
        if self.fields.len() > 64 {
            return fails("a table has at most 64 columns");
        }
        if self.hash && self.key.is_empty() {
            return fails("a hash table needs a primary key: mark its fields with #[key]");
        }
        for (at, index) in self.indexes.iter().enumerate() {
            if self.indexes[..at].iter().any(|earlier| earlier.name == index.name) {
                let text = format!("two indexes are called {:?}", index.name);
                return Err(syn::Error::new(index.span, text));
            }
        }
        Ok(())
    }
}

/// `OrderLine` is `order_line`.
fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for (at, c) in name.char_indices() {
        if c.is_uppercase() && at > 0 {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}
