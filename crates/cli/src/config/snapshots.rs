//! Indexes of snapshots, so that queries need not read all of them.

use std::collections::BTreeMap;

use annals::order::Direction;
use annals::{Index, IndexForm, OpenError, Store, TextLanguage, snapshot_indexes};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SnapshotsSection {
    /// The indexes of each aggregate. An index is a list of paths separated by commas, with `-` before a descending one. The words
    /// `unique`, `sparse`, `hashed` or `text` precede the paths. A text index may have a language beside `text`.
    pub indexes: BTreeMap<String, Vec<String>>,
}

/// The indexes of the snapshots of one aggregate.
pub struct DeclaredIndexes {
    name: String,
    indexes: Vec<Index>,
}

impl SnapshotsSection {
    /// Returns the declared indexes.
    ///
    /// # Errors
    /// `invalid_config` for an invalid aggregate or index, with its place.
    pub fn declared(&self) -> Result<Vec<DeclaredIndexes>, Failure> {
        let mut declared = Vec::new();
        for (name, texts) in &self.indexes {
            let wrong = |at: &str, why: &str| Failure::config(format!("snapshots.indexes.{name}{at}: {why}"));
            let read = |(n, text): (usize, &String)| index(text).map_err(|why| wrong(&format!("[{n}]"), &why));
            let indexes = texts.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
            snapshot_indexes(name, indexes.clone()).map_err(|fault| wrong("", &fault.to_string()))?;
            declared.push(DeclaredIndexes { name: name.clone(), indexes });
        }
        Ok(declared)
    }
}

impl DeclaredIndexes {
    /// Declares them for every tenant. Existing indexes stay. A conflict with an existing index of another form is an error.
    ///
    /// # Errors
    /// That of the store, which then must not be served.
    pub async fn declare(&self, store: &dyn Store) -> Result<(), OpenError> {
        for tenant in store.tenants() {
            let snapshots =
                store.snapshots(&tenant).map_err(|error| OpenError::new(error.code(), error.to_string()))?;
            let declared = snapshots.declare(&self.name, self.indexes.clone()).await;
            declared.map_err(|error| {
                let place = format!("snapshots.indexes.{} for tenant {tenant:?}", self.name);
                OpenError::new(error.code(), format!("{place}: {error}"))
            })?;
        }
        Ok(())
    }
}

/// Parses an index such as `unique state.email` or `state.status,-state.total`.
fn index(text: &str) -> Result<Index, String> {
    let mut words: Vec<&str> = text.split_ascii_whitespace().collect();
    let paths = words.pop().ok_or("is empty; write the path of a field, such as state.status")?;
    let mut fields = Vec::new();
    for path in paths.split(',') {
        fields.push(match path.strip_prefix('-') {
            Some(path) => (path, Direction::Descending),
            None => (path, Direction::Ascending),
        });
    }
    let (mut form, mut language) = (IndexForm::default(), None);
    for word in words {
        match word {
            "unique" => form.unique = true,
            "sparse" => form.sparse = true,
            "hashed" => form.hashed = true,
            "text" => form.text = true,
            other => {
                language = Some(other.parse::<TextLanguage>().map_err(|_| {
                    format!(
                        "{other:?} is not unique, sparse, hashed, text or the language of a text index; separate paths by commas"
                    )
                })?);
            }
        }
    }
    form.language = language.map(|language| language.name().to_owned());
    form.name = match &fields[..] {
        [(path, _)] if form.hashed => Index::hashed(path).name,
        fields if form.text => Index::text(fields.iter().map(|(path, _)| *path)).name,
        fields => Index::ordered(fields.iter().copied()).name,
    };
    if form.hashed && fields.iter().any(|(_, way)| *way == Direction::Descending) {
        return Err("is hashed, so it must have exactly one path, without a -".to_owned());
    }
    form.fields = fields.into_iter().map(|(path, direction)| (path.to_owned(), direction)).collect();
    Index::try_from(form)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_its_paths_with_words_before_them() {
        let descending =
            Index::ordered([("state.status", Direction::Ascending), ("state.total", Direction::Descending)]);
        assert_eq!(index("state.status,-state.total"), Ok(descending.into()));
        assert_eq!(index("unique sparse state.email"), Ok(Index::on("state.email").unique().sparse().into()));
        assert_eq!(index("hashed state.customer"), Ok(Index::hashed("state.customer").into()));
        assert_eq!(index("text state.title,state.body"), Ok(Index::text(["state.title", "state.body"]).into()));
        let english = Index::text(["state.body"]).language(TextLanguage::English);
        assert_eq!(index("text english state.body"), Ok(english.into()));
        for wrong in [
            "",
            "state.a state.b",
            "hashed a,b",
            "hashed -a",
            "text -a",
            "text hashed a",
            "english a",
            "text klingon a",
        ] {
            assert!(index(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_place() {
        let refused = |name: &str, index: &str| {
            let indexes = BTreeMap::from([(name.to_owned(), vec!["state.a".to_owned(), index.to_owned()])]);
            SnapshotsSection { indexes }.declared().err().expect("refused").message
        };
        assert!(refused("order", "").starts_with("snapshots.indexes.order[1]: "));
        assert!(refused("order", "state.a").starts_with("snapshots.indexes.order: "), "declared twice");
        assert!(refused("order", "status").contains("state.status"));
        assert!(refused("an order", "state.b").starts_with("snapshots.indexes.an order: "));
    }
}
