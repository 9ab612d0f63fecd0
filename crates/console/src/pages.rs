//! Every page, in the order of the menu. A page consists of a file in `pages/`, a template, and one line here.

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
    mod events;
    mod archive;
    mod log;
    mod event;
    mod aggregates;
    mod streams;
    mod types;
    mod replays;
    mod preview;
    mod handlers;
    mod filters;
    mod projections;
    mod topics;
    mod groups;
    mod dead_letters;
    mod sagas;
    mod saga_definitions;
    mod queues;
    mod partners;
    mod horizon;
    mod records;
    mod snapshots;
    mod keys;
    mod tenants;
    mod credentials;
    mod configuration;
    mod audit;
}
