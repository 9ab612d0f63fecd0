//! Evaluation of conditions on documents.

use std::collections::HashSet;

use bson::raw::{RawArray, RawDocument};
use bson::{Bson, RawBson, RawBsonRef};

use super::fragment::{Search, Side};
use super::path::{AtArray, walk};
use super::{Condition, Deletion, Test, raw};
use crate::TextIndex;
use crate::order::{TypeOrder, encode};
use crate::text::{TextFields, TextSearch};

/// A condition prepared for evaluating many documents. It must be [`judgeable`](Condition::judgeable); a part that is not judgeable
/// matches no document.
#[derive(Debug, Clone)]
pub struct Matcher {
    node: Node,
    /// The text search that documents must also match.
    text: Option<(TextSearch, TextFields)>,
}

#[derive(Debug, Clone)]
enum Node {
    All,
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Compare {
        path: Vec<String>,
        with: Vec<Operand>,
    },
    OneOf {
        path: Vec<String>,
        values: Box<OneOf>,
    },
    Exists {
        path: Vec<String>,
    },
    Find {
        path: Vec<String>,
        search: Search,
    },
    Element {
        path: Vec<String>,
        inner: Box<Node>,
    },
    /// A part that cannot be evaluated here.
    Nothing,
}

/// Values of which one must be equal. They are looked up, so their number does not matter.
#[derive(Debug, Clone)]
struct OneOf {
    /// The values in the encoding that defines the sort order.
    encodings: HashSet<Vec<u8>>,
    /// Whether one of them is null or undefined, which a missing field equals.
    nothing: bool,
    not_a_number: bool,
}

/// A value to compare with, in the encoding that defines the sort order.
#[derive(Debug, Clone)]
struct Operand {
    comparison: Comparison,
    type_order: TypeOrder,
    encoding: Vec<u8>,
    not_a_number: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Eq,
    Gt,
    Gte,
    Lt,
    Lte,
}

impl Matcher {
    /// Prepares a condition.
    pub fn new(condition: &Condition) -> Self {
        Self { node: Node::of(condition), text: None }
    }

    /// Prepares a condition whose `MATCH` searches the fields of this index.
    pub fn by_text(condition: &Condition, index: &TextIndex) -> Self {
        let Some(search) = condition.text_search() else { return Self::new(condition) };
        let fields = TextFields::new(index.paths.iter().map(String::as_str));
        Self { node: Node::of(&condition.without_text_search()), text: Some((TextSearch::new(search), fields)) }
    }

    /// Returns whether a document matches the condition.
    pub fn matches(&self, document: &RawDocument) -> bool {
        let has_text = |(search, fields): &(TextSearch, TextFields)| search.finds(document, fields);
        self.node.matches(document) && self.text.as_ref().is_none_or(has_text)
    }
}

impl Node {
    fn of(condition: &Condition) -> Self {
        let all = |children: &[Condition]| children.iter().map(Self::of).collect();
        match condition {
            Condition::All => Self::All,
            Condition::And(children) => Self::And(all(children)),
            Condition::Or(children) => Self::Or(all(children)),
            Condition::Nor(children) => Self::Not(Box::new(Self::Or(all(children)))),
            Condition::Field { path, test } => Self::of_test(path, test),
            Condition::Deleted(Deletion::All) => Self::All,
            Condition::Deleted(which) => Self::of_test("deleted", &Test::Eq((*which == Deletion::Deleted).into())),
            Condition::Raw(filter) => raw::translated(filter).map_or(Self::Nothing, |translated| Self::of(&translated)),
            Condition::Match(_) => Self::Nothing,
        }
    }

    fn of_test(path: &str, test: &Test) -> Self {
        let path: Vec<String> = path.split('.').map(str::to_owned).collect();
        let compare = |comparison, value: &Bson| Self::Compare {
            path: path.clone(),
            with: vec![Operand::new(comparison, value)],
        };
        let one_of = |values: &[Bson]| Self::OneOf { path: path.clone(), values: Box::new(OneOf::new(values)) };
        let not = |node| Self::Not(Box::new(node));
        let find = |side, fragment| Self::Find { path: path.clone(), search: Search::new(side, fragment) };
        match test {
            Test::Eq(value) => compare(Comparison::Eq, value),
            Test::Ne(value) => not(compare(Comparison::Eq, value)),
            Test::Gt(value) => compare(Comparison::Gt, value),
            Test::Gte(value) => compare(Comparison::Gte, value),
            Test::Lt(value) => compare(Comparison::Lt, value),
            Test::Lte(value) => compare(Comparison::Lte, value),
            Test::In(values) => one_of(values),
            Test::NotIn(values) => not(one_of(values)),
            Test::Between(low, high) => Self::And(vec![compare(Comparison::Gte, low), compare(Comparison::Lte, high)]),
            Test::Exists(true) => Self::Exists { path },
            Test::Exists(false) => not(Self::Exists { path }),
            Test::AllIn(values) if values.is_empty() => Self::Nothing,
            Test::AllIn(values) => Self::And(values.iter().map(|value| compare(Comparison::Eq, value)).collect()),
            Test::ElemMatch(inner) => Self::Element { inner: Box::new(Self::of(inner)), path },
            Test::Contains(fragment) => find(Side::Anywhere, fragment),
            Test::StartsWith(fragment) => find(Side::Start, fragment),
            Test::EndsWith(fragment) => find(Side::End, fragment),
            Test::Within(_) => Self::Nothing,
        }
    }

    fn matches(&self, document: &RawDocument) -> bool {
        match self {
            Self::All => true,
            Self::And(nodes) => nodes.iter().all(|node| node.matches(document)),
            Self::Or(nodes) => nodes.iter().any(|node| node.matches(document)),
            Self::Not(node) => !node.matches(document),
            Self::Exists { path } => walk(document, path, AtArray::Whole, &mut |value| value.is_some()),
            Self::Nothing => false,
            Self::Find { path, search } => {
                walk(document, path, AtArray::Elements, &mut |value| value.is_some_and(|value| search.finds(value)))
            }
            Self::Element { path, inner } => walk(document, path, AtArray::Whole, &mut |value| match value {
                Some(RawBsonRef::Array(array)) => inner.matches_element(array),
                _ => false,
            }),
            Self::OneOf { path, values } => {
                let mut encoding = Vec::new();
                walk(document, path, AtArray::Elements, &mut |value| {
                    encoding.clear();
                    let value = value.unwrap_or(RawBsonRef::Undefined);
                    encode(value, &mut encoding);
                    values.admit(&value, &encoding)
                })
            }
            Self::Compare { path, with } => {
                let mut encoding = Vec::new();
                walk(document, path, AtArray::Elements, &mut |value| {
                    encoding.clear();
                    let value = value.unwrap_or(RawBsonRef::Undefined);
                    encode(value, &mut encoding);
                    with.iter().any(|operand| operand.admits(&value, &encoding))
                })
            }
        }
    }
}

impl Node {
    /// Returns whether an element of an array is a document that matches. An inner array counts as a document with the fields `0`, `1` and
    /// so on.
    fn matches_element(&self, array: &RawArray) -> bool {
        array.into_iter().flatten().any(|element| match element {
            RawBsonRef::Document(document) => self.matches(document),
            RawBsonRef::Array(inner) => {
                RawDocument::from_bytes(inner.as_bytes()).is_ok_and(|inner| self.matches(inner))
            }
            _ => false,
        })
    }
}

impl OneOf {
    fn new(values: &[Bson]) -> Self {
        let operands: Vec<_> = values.iter().map(|value| Operand::new(Comparison::Eq, value)).collect();
        let nothing = |operand: &Operand| matches!(operand.type_order, TypeOrder::Null | TypeOrder::Undefined);
        Self {
            nothing: operands.iter().any(nothing),
            not_a_number: operands.iter().any(|operand| operand.not_a_number),
            // NaN values have an encoding too, but must not be compared by it.
            encodings: operands.into_iter().filter(|it| !it.not_a_number).map(|it| it.encoding).collect(),
        }
    }

    /// Returns whether a value passes. A missing field is passed as undefined, which counts as null here.
    fn admit(&self, value: &RawBsonRef<'_>, encoding: &[u8]) -> bool {
        if matches!(TypeOrder::of(value), TypeOrder::Null | TypeOrder::Undefined) {
            return self.nothing;
        }
        if is_not_a_number(value) { self.not_a_number } else { self.encodings.contains(encoding) }
    }
}

impl Operand {
    fn new(comparison: Comparison, value: &Bson) -> Self {
        let raw = RawBson::try_from(value.clone()).unwrap_or(RawBson::Null);
        let value = raw.as_raw_bson_ref();
        let mut encoding = Vec::new();
        encode(value, &mut encoding);
        Self { comparison, type_order: TypeOrder::of(&value), encoding, not_a_number: is_not_a_number(&value) }
    }

    /// Returns whether a value passes. A missing field is passed as undefined, which counts as null here.
    fn admits(&self, value: &RawBsonRef<'_>, encoding: &[u8]) -> bool {
        use Comparison::{Eq, Gt, Gte, Lt, Lte};
        let type_order = TypeOrder::of(value);
        if type_order != self.type_order {
            let nothing = |order| matches!(order, TypeOrder::Null | TypeOrder::Undefined);
            return match self.type_order {
                TypeOrder::MinKey => matches!(self.comparison, Gt | Gte),
                TypeOrder::MaxKey => matches!(self.comparison, Lt | Lte),
                other => nothing(other) && nothing(type_order) && matches!(self.comparison, Eq | Gte | Lte),
            };
        }
        if type_order == TypeOrder::Number {
            let not_a_number = is_not_a_number(value);
            if not_a_number || self.not_a_number {
                return not_a_number && self.not_a_number && matches!(self.comparison, Eq | Gte | Lte);
            }
        }
        let order = encoding.cmp(&self.encoding);
        match self.comparison {
            Eq => order.is_eq(),
            Gt => order.is_gt(),
            Gte => order.is_ge(),
            Lt => order.is_lt(),
            Lte => order.is_le(),
        }
    }
}

fn is_not_a_number(value: &RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Double(value) => value.is_nan(),
        RawBsonRef::Decimal128(value) => (u128::from_le_bytes(value.bytes()) >> 122) & 0b1_1111 == 0b1_1111,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use bson::{Decimal128, doc};

    use super::*;

    /// Every kind of value, and some that are equal across types.
    fn values() -> Vec<Bson> {
        let decimal = |text: &str| Bson::Decimal128(text.parse::<Decimal128>().expect("a decimal"));
        vec![
            Bson::Null,
            Bson::Undefined,
            Bson::MinKey,
            Bson::MaxKey,
            1.into(),
            1i64.into(),
            1.0.into(),
            decimal("1"),
            f64::NAN.into(),
            decimal("NaN"),
            (-0.0).into(),
            0.into(),
            "1".into(),
            "".into(),
            true.into(),
            doc! { "a": 1 }.into(),
            vec![Bson::from(1), Bson::Null].into(),
            Bson::Array(Vec::new()),
        ]
    }

    /// To compare with each of them would take a thousand times as long, for every record that has none.
    #[test]
    fn one_of_many_is_looked_up_and_not_compared_with_each() {
        const MANY: i32 = 9_999;
        let many: Vec<Bson> = (0..MANY).map(Bson::Int32).collect();
        for test in [Test::In(many.clone()), Test::NotIn(many)] {
            let matcher = Matcher::new(&Condition::field("f", test));
            let node = match &matcher.node {
                Node::Not(inner) => &**inner,
                other => other,
            };
            let Node::OneOf { values, .. } = node else { panic!("the values are not looked up") };
            let looked_up: &HashSet<Vec<u8>> = &values.encodings;
            assert_eq!(looked_up.len(), MANY as usize);
        }
    }

    #[test]
    fn one_of_several_is_what_each_of_them_alone_would_be() {
        let values = values();
        for (n, one) in values.iter().enumerate() {
            for other in &values[n..] {
                let wanted = [one.clone(), other.clone()];
                let each = wanted.each_ref().map(|value| Matcher::new(&Condition::field("f", Test::Eq(value.clone()))));
                let together = Matcher::new(&Condition::field("f", Test::In(wanted.to_vec())));
                for found in values.iter().map(|value| doc! { "f": value }).chain([doc! {}]) {
                    let raw = bson::raw::RawDocumentBuf::try_from(&found).expect("a document");
                    let due = each.iter().any(|matcher| matcher.matches(&raw));
                    assert_eq!(together.matches(&raw), due, "{found} in {wanted:?}");
                }
            }
        }
    }
}
