//! Every page, in the order of the menu. A page is a file in `pages/`, a template, and one line here.

use crate::page::Page;

macro_rules! pages {
    ($(mod $name:ident;)*) => {
        $(mod $name;)*

        /// Every page.
        pub(crate) static PAGES: &[Page] = &[$($name::PAGE,)*];
    };
}

pages! {
    mod overview;
    mod log;
    mod event;
    mod aggregates;
    mod streams;
    mod types;
    mod handlers;
    mod filters;
    mod projections;
    mod topics;
    mod groups;
    mod horizon;
    mod records;
    mod snapshots;
    mod keys;
    mod tenants;
    mod credentials;
    mod configuration;
    mod audit;
}
