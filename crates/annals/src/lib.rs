//! An event store and event backbone: open a store by URL, commit, read, follow
