//! The serialized form of indexes, used in catalogs, exports and requests.

use serde::{Deserialize, Serialize};

use super::{HashedIndex, Index, OrderedIndex, TextIndex, TextLanguage};
use crate::Condition;
use crate::order::Direction;

/// The serialized form of an index: one flat document for every kind. `hashed` and `text` determine the kind.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct IndexForm {
    /// Its name.
    pub name: String,
    /// The paths, each with its direction.
    pub fields: Vec<(String, Direction)>,
    /// Whether no two records have the same entry.
    #[serde(default)]
    pub unique: bool,
    /// Whether it serves equality only.
    #[serde(default)]
    pub hashed: bool,
    /// Whether it is a text index.
    #[serde(default)]
    pub text: bool,
    /// Whether records that have none of the fields have no entry.
    #[serde(default)]
    pub sparse: bool,
    /// If set, only records that match this condition have entries.
    #[serde(default)]
    pub partial: Option<Condition>,
    /// If set, records are deleted this many seconds after the date in the index's only field.
    #[serde(default)]
    pub expires_after_seconds: Option<u32>,
    /// The language of the words. Omitted for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The field that overrides the language on MongoDB. Omitted if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub language_override: Option<String>,
}

impl From<Index> for IndexForm {
    fn from(index: Index) -> Self {
        match index {
            Index::Ordered(OrderedIndex { name, fields, unique, sparse, partial, expires_after_seconds }) => {
                Self { name, fields, unique, sparse, partial, expires_after_seconds, ..Self::default() }
            }
            Index::Hashed(HashedIndex { name, path, direction, sparse, partial }) => {
                Self { name, fields: vec![(path, direction)], hashed: true, sparse, partial, ..Self::default() }
            }
            Index::Text(TextIndex { name, paths, language, language_override }) => {
                let fields = paths.into_iter().map(|path| (path, Direction::Ascending)).collect();
                let language = (language != TextLanguage::None).then(|| language.name().to_owned());
                Self { name, fields, text: true, language, language_override, ..Self::default() }
            }
        }
    }
}

impl TryFrom<IndexForm> for Index {
    type Error = String;

    /// Converts the form to the kind of index that it describes.
    ///
    /// # Errors
    /// A sentence about the index, if it has an option that its kind cannot have.
    fn try_from(form: IndexForm) -> Result<Self, String> {
        let IndexForm { name, fields, unique, hashed, text, sparse, partial, .. } = form;
        let (expires_after_seconds, language) = (form.expires_after_seconds, form.language);
        let language_override = form.language_override;
        if text {
            let directed = fields.iter().any(|(_, direction)| *direction == Direction::Descending);
            if directed || unique || hashed || sparse || partial.is_some() || expires_after_seconds.is_some() {
                return Err(
                    "is a text index, which has fields without a direction and optionally a language".to_owned()
                );
            }
            let language = language.as_deref().map_or(Ok(TextLanguage::None), str::parse)?;
            let paths = fields.into_iter().map(|(path, _)| path).collect();
            return Ok(Self::Text(TextIndex { name, paths, language, language_override }));
        }
        if language.is_some() || language_override.is_some() {
            return Err("has a language, which only a text index has".to_owned());
        }
        if !hashed {
            return Ok(Self::Ordered(OrderedIndex { name, fields, unique, sparse, partial, expires_after_seconds }));
        }
        match <[_; 1]>::try_from(fields) {
            Ok([(path, direction)]) if !unique && expires_after_seconds.is_none() => {
                Ok(Self::Hashed(HashedIndex { name, path, direction, sparse, partial }))
            }
            _ => Err("is hashed, so it has one field, and neither is unique nor expires".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_written_as_by_former_versions_and_read_again() {
        let ordered = Index::ordered([("a", Direction::Ascending), ("b.c", Direction::Descending)]);
        let all: [(Index, &str); 4] = [
            (
                ordered.unique().sparse().into(),
                r#"{"name":"a_1_b.c_-1","fields":[["a","ASC"],["b.c","DESC"]],"unique":true,"hashed":false,"text":false,"sparse":true,"partial":null,"expires_after_seconds":null}"#,
            ),
            (
                Index::on("at").expires_after_seconds(60).into(),
                r#"{"name":"at_1","fields":[["at","ASC"]],"unique":false,"hashed":false,"text":false,"sparse":false,"partial":null,"expires_after_seconds":60}"#,
            ),
            (
                Index::hashed("a").into(),
                r#"{"name":"a_hashed","fields":[["a","ASC"]],"unique":false,"hashed":true,"text":false,"sparse":false,"partial":null,"expires_after_seconds":null}"#,
            ),
            (
                Index::text(["a", "b"]).into(),
                r#"{"name":"a_text_b_text","fields":[["a","ASC"],["b","ASC"]],"unique":false,"hashed":false,"text":true,"sparse":false,"partial":null,"expires_after_seconds":null}"#,
            ),
        ];
        for (index, written) in all {
            assert_eq!(serde_json::to_string(&index).expect("JSON"), written);
            assert_eq!(serde_json::from_str::<Index>(written).expect("an index"), index);
        }
        let english = Index::Text(Index::text(["a"]).language(TextLanguage::English));
        let written = serde_json::to_value(&english).expect("JSON");
        assert_eq!(written["language"], "english");
        assert_eq!(serde_json::from_value::<Index>(written).expect("an index"), english);
    }

    #[test]
    fn an_option_that_the_kind_cannot_have_is_refused() {
        let fields = || vec![("a".to_owned(), Direction::Ascending)];
        let text = || IndexForm { name: "i".to_owned(), fields: fields(), text: true, ..IndexForm::default() };
        let hashed = || IndexForm { text: false, hashed: true, ..text() };
        let descending = vec![("a".to_owned(), Direction::Descending)];
        let two = vec![("a".to_owned(), Direction::Ascending), ("b".to_owned(), Direction::Ascending)];
        let wrong = [
            IndexForm { unique: true, ..text() },
            IndexForm { sparse: true, ..text() },
            IndexForm { partial: Some(Condition::eq("b", 1)), ..text() },
            IndexForm { expires_after_seconds: Some(5), ..text() },
            IndexForm { hashed: true, ..text() },
            IndexForm { fields: descending, ..text() },
            IndexForm { language: Some("klingon".to_owned()), ..text() },
            IndexForm { language: Some("english".to_owned()), ..hashed() },
            IndexForm { unique: true, ..hashed() },
            IndexForm { expires_after_seconds: Some(5), ..hashed() },
            IndexForm { fields: two, ..hashed() },
            IndexForm { fields: Vec::new(), ..hashed() },
        ];
        for form in wrong {
            assert!(Index::try_from(form.clone()).is_err(), "{form:?}");
        }
        assert!(Index::try_from(text()).is_ok() && Index::try_from(hashed()).is_ok());
    }
}
