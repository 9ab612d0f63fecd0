//! The fields that a condition tests, and the values to which it restricts them.

use std::collections::BTreeSet;

use bson::Bson;

use super::{Condition, Test, raw};

impl Condition {
    /// Visits the path of every test of the document's own fields, but not those inside `ElemMatch`, which belong to elements. Of a
    /// MongoDB filter document, it visits the parts that can be translated.
    ///
    /// # Errors
    /// The first error that `visit` returns.
    pub(crate) fn each_path<E>(&self, visit: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        match self {
            Self::And(children) | Self::Or(children) | Self::Nor(children) => {
                children.iter().try_for_each(|child| child.each_path(visit))
            }
            Self::Field { path, .. } => visit(path),
            Self::Raw(filter) => raw::translated(filter).map_or(Ok(()), |translated| translated.each_path(visit)),
            Self::All | Self::Deleted(_) | Self::Match(_) => Ok(()),
        }
    }

    /// Returns the strings of which a field must equal one for the condition to match; `None` if any value may match. The field must exist
    /// in every document and must not lead to an array.
    pub fn texts_of(&self, path: &str) -> Option<BTreeSet<String>> {
        match self {
            Self::Field { path: tested, test } if tested == path => match test {
                Test::Eq(value) => texts(std::slice::from_ref(value)),
                Test::In(values) => texts(values),
                _ => None,
            },
            Self::And(children) => children.iter().filter_map(|child| child.texts_of(path)).min_by_key(BTreeSet::len),
            Self::Or(children) => {
                let all: Option<Vec<_>> = children.iter().map(|child| child.texts_of(path)).collect();
                Some(all?.into_iter().flatten().collect())
            }
            Self::Raw(filter) => raw::translated(filter).ok()?.texts_of(path),
            _ => None,
        }
    }
}

/// Returns the strings among the values. Other values equal no string, except for symbols, for which it returns `None`.
fn texts(values: &[Bson]) -> Option<BTreeSet<String>> {
    if values.iter().any(|value| matches!(value, Bson::Symbol(_))) {
        return None;
    }
    Some(values.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect())
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn of_a(condition: &Condition) -> Option<Vec<String>> {
        condition.texts_of("a").map(|texts| texts.into_iter().collect())
    }

    #[test]
    fn a_field_must_be_one_of_the_texts_that_all_ways_to_pass_name() {
        let list = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        let (one, two) = (Condition::eq("a", "1"), Condition::is_in("a", ["2", "3"]));
        assert_eq!(of_a(&one), list(&["1"]));
        assert_eq!(of_a(&two), list(&["2", "3"]));
        assert_eq!(of_a(&Condition::And(vec![Condition::All, two.clone(), one.clone()])), list(&["1"]));
        assert_eq!(of_a(&Condition::Or(vec![one.clone(), two.clone()])), list(&["1", "2", "3"]));
        assert_eq!(of_a(&Condition::Or(vec![one.clone(), Condition::eq("b", "1")])), None);
        assert_eq!(of_a(&Condition::Nor(vec![one.clone()])), None);
        assert_eq!(of_a(&Condition::raw(doc! { "a": { "$in": ["1", 5] } })), list(&["1"]));
        let symbol = Condition::eq("a", Bson::Symbol("1".to_owned()));
        let begins = Condition::starts_with("a", "1");
        for open in [Condition::All, Condition::ne("a", "1"), begins, Condition::raw(doc! {}), symbol] {
            assert_eq!(of_a(&open), None);
        }
        assert_eq!(of_a(&Condition::eq("a", 5)), list(&[]));
    }

    #[test]
    fn every_path_is_visited_but_those_of_elements() {
        let condition = Condition::Or(vec![
            Condition::eq("a", 1),
            Condition::elem_match("b", Condition::eq("c", 1)),
            Condition::Nor(vec![Condition::raw(doc! { "d.e": 1, "$or": [{ "f": { "$exists": true } }] })]),
        ]);
        let mut seen = Vec::new();
        let visited = condition.each_path::<()>(&mut |path| {
            seen.push(path.to_owned());
            Ok(())
        });
        assert_eq!((visited, seen), (Ok(()), ["a", "b", "d.e", "f"].map(str::to_owned).to_vec()));
    }
}
