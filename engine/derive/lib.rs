//! `#[derive(Module)]` for structs of layers: see `lucid::nn::Module`.
//!
//! Depends on no crate of the engine. The code that it writes names `::lucid::nn` alone, so the engine's own layers use it
//! too.
#![deny(unsafe_code)]

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{format_ident, quote, quote_spanned, ToTokens};
use syn::spanned::Spanned;
use syn::{
    parse_macro_input, parse_quote, Data, DeriveInput, Error, Field, Fields, GenericArgument, Index, LitStr,
    PathArguments, Type,
};

/// Implements `lucid::nn::Module` for a struct.
///
/// A field of type `Tensor` or `Option<Tensor>` is a parameter, a `bool` called `training` the mode, a `Place` the place
/// that errors name; numbers, strings and lists of them are settings; every other field is a submodule. Attributes say what
/// differs:
///
/// - `#[module(buffer)]`: a tensor that is saved but not trained.
/// - `#[module(constant)]`: a tensor that moves between devices and is not saved.
/// - `#[module(skip)]`: a setting of another type.
/// - `#[module(flatten)]`: a submodule whose names have no prefix.
/// - `#[module(name = "…")]`: another name than the field's.
///
/// A type parameter that a submodule is made of is a module: `struct Model<H> { head: H }` needs no bound.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// What a field is to the module.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Parameter,
    Buffer,
    Constant,
    Submodule,
    Flattened,
    Training,
    Place,
    Setting,
}

fn expand(input: &DeriveInput) -> Result<TokenStream, Error> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.span(), "derive(Module) is for structs; match over an enum's variants by hand"));
    };
    let fields: Vec<&Field> = match &data.fields {
        Fields::Named(named) => named.named.iter().collect(),
        Fields::Unnamed(unnamed) => unnamed.unnamed.iter().collect(),
        Fields::Unit => Vec::new(),
    };
    let (mut shared, mut unique) = (TokenStream::new(), TokenStream::new());
    let mut place = quote!(::core::option::Option::None);
    let generic: Vec<Ident> = input.generics.type_params().map(|own| own.ident.clone()).collect();
    let mut parts: Vec<Ident> = Vec::new();
    for (i, field) in fields.into_iter().enumerate() {
        let (kind, renamed) = described(field)?;
        let index = Index::from(i);
        let (access, own) = match &field.ident {
            Some(ident) => (quote!(#ident), ident.to_string().trim_start_matches("r#").to_string()),
            None => (quote!(#index), i.to_string()),
        };
        let name = renamed.unwrap_or(own);
        if matches!(kind, Kind::Submodule | Kind::Flattened) {
            parts.extend(generic.iter().filter(|own| mentions(field.ty.to_token_stream(), own)).cloned());
        }
        let optional = inner_of("Option", &field.ty).is_some();
        match kind {
            Kind::Setting => {}
            Kind::Place => place = quote!(::core::option::Option::Some(&self.#access)),
            Kind::Training => {
                shared.extend(quote!(slots.push((#name.into(), ::lucid::nn::Slot::Training(self.#access)));));
                unique.extend(quote!(slots.push((#name.into(), ::lucid::nn::SlotMut::Training(&mut self.#access)));));
            }
            // A field that is no module is shown where its type stands.
            Kind::Submodule => {
                let at = field.ty.span().resolved_at(Span::call_site());
                shared
                    .extend(quote_spanned!(at=> slots.push((#name.into(), ::lucid::nn::Slot::Module(&self.#access)));));
                unique.extend(
                    quote_spanned!(at=> slots.push((#name.into(), ::lucid::nn::SlotMut::Module(&mut self.#access)));),
                );
            }
            Kind::Flattened => {
                let at = field.ty.span().resolved_at(Span::call_site());
                shared.extend(quote_spanned!(at=> slots.extend(::lucid::nn::Module::slots(&self.#access));));
                unique.extend(quote_spanned!(at=> slots.extend(::lucid::nn::Module::slots_mut(&mut self.#access));));
            }
            Kind::Parameter | Kind::Buffer | Kind::Constant => {
                let variant = match kind {
                    Kind::Parameter => format_ident!("Parameter"),
                    Kind::Buffer => format_ident!("Buffer"),
                    _ => format_ident!("Constant"),
                };
                if optional {
                    shared.extend(quote! {
                        if let ::core::option::Option::Some(t) = &self.#access {
                            slots.push((#name.into(), ::lucid::nn::Slot::#variant(t)));
                        }
                    });
                    unique.extend(quote! {
                        if let ::core::option::Option::Some(t) = &mut self.#access {
                            slots.push((#name.into(), ::lucid::nn::SlotMut::#variant(t)));
                        }
                    });
                } else {
                    shared.extend(quote!(slots.push((#name.into(), ::lucid::nn::Slot::#variant(&self.#access)));));
                    unique
                        .extend(quote!(slots.push((#name.into(), ::lucid::nn::SlotMut::#variant(&mut self.#access)));));
                }
            }
        }
    }
    let ident = &input.ident;
    let mut bounded = input.generics.clone();
    // Parameters that submodules are made of are modules.
    for own in bounded.type_params_mut().filter(|own| parts.contains(&own.ident)) {
        own.bounds.push(parse_quote!(::lucid::nn::Module));
    }
    let (generics, arguments, bounds) = bounded.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #generics ::lucid::nn::Module for #ident #arguments #bounds {
            fn slots(&self) -> ::std::vec::Vec<(::lucid::nn::Name, ::lucid::nn::Slot<'_>)> {
                #[allow(unused_mut)]
                let mut slots = ::std::vec::Vec::new();
                #shared
                slots
            }
            fn slots_mut(&mut self) -> ::std::vec::Vec<(::lucid::nn::Name, ::lucid::nn::SlotMut<'_>)> {
                #[allow(unused_mut)]
                let mut slots = ::std::vec::Vec::new();
                #unique
                slots
            }
            fn place(&self) -> ::core::option::Option<&::lucid::nn::Place> {
                #place
            }
        }
    })
}

/// Is the name among these tokens?
fn mentions(tokens: TokenStream, name: &Ident) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(own) => own == *name,
        TokenTree::Group(group) => mentions(group.stream(), name),
        TokenTree::Punct(_) | TokenTree::Literal(_) => false,
    })
}

/// What a field's attributes and type say it is, and its other name.
fn described(field: &Field) -> Result<(Kind, Option<String>), Error> {
    let (mut kind, mut name) = (None, None);
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            let said = [
                ("buffer", Kind::Buffer),
                ("constant", Kind::Constant),
                ("skip", Kind::Setting),
                ("flatten", Kind::Flattened),
            ];
            if meta.path.is_ident("name") {
                name = Some(meta.value()?.parse::<LitStr>()?.value());
                return Ok(());
            }
            let found = said.into_iter().find(|(word, _)| meta.path.is_ident(word));
            let (_, found) =
                found.ok_or_else(|| meta.error("expected one of buffer, constant, skip, flatten, name = \"…\""))?;
            if kind.replace(found).is_some() {
                return Err(meta.error("a field is one thing alone"));
            }
            Ok(())
        })?;
    }
    let tensor = is_tensor(&field.ty);
    if matches!(kind, Some(Kind::Buffer | Kind::Constant)) && !tensor {
        return Err(Error::new(field.ty.span(), "buffers and constants are of type Tensor or Option<Tensor>"));
    }
    if kind.is_none() && inner_of("Vec", &field.ty).is_some_and(|inner| is_named("Tensor", inner)) {
        let why = "parameters in a list are an `nn::ParameterList`; other tensors are marked `#[module(skip)]`";
        return Err(Error::new(field.ty.span(), why));
    }
    if let Some(given) = &name {
        if given.is_empty() || given.contains('.') {
            return Err(Error::new(field.span(), "a name is not empty and has no dots"));
        }
    }
    let training = field.ident.as_ref().is_some_and(|ident| ident == "training") && is_named("bool", &field.ty);
    let kind = kind.unwrap_or(match () {
        () if training => Kind::Training,
        () if is_named("Place", &field.ty) => Kind::Place,
        () if tensor => Kind::Parameter,
        () if is_setting(&field.ty) => Kind::Setting,
        () => Kind::Submodule,
    });
    Ok((kind, name))
}

fn is_named(name: &str, ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|s| s.ident == name && s.arguments.is_empty()))
}

/// `T` of `Name<T>`.
fn inner_of<'a>(name: &str, ty: &'a Type) -> Option<&'a Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|s| s.ident == name)?;
    let PathArguments::AngleBracketed(list) = &last.arguments else { return None };
    list.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(inner) => Some(inner),
        _ => None,
    })
}

fn is_tensor(ty: &Type) -> bool {
    is_named("Tensor", ty) || inner_of("Option", ty).is_some_and(|inner| is_named("Tensor", inner))
}

/// Is it a number, a string, or a list of such?
fn is_setting(ty: &Type) -> bool {
    const PLAIN: [&str; 20] = [
        "bool", "char", "f32", "f64", "i8", "i16", "i32", "i64", "i128", "isize", "u8", "u16", "u32", "u64", "u128",
        "usize", "String", "DType", "Device", "Scalar",
    ];
    match ty {
        Type::Array(array) => is_setting(&array.elem),
        Type::Tuple(tuple) => tuple.elems.iter().all(is_setting),
        Type::Reference(reference) => is_named("str", &reference.elem),
        Type::Path(_) if inner_of("PhantomData", ty).is_some() => true,
        Type::Path(_) => {
            PLAIN.iter().any(|name| is_named(name, ty))
                || ["Option", "Vec"].iter().any(|list| inner_of(list, ty).is_some_and(is_setting))
        }
        _ => false,
    }
}
