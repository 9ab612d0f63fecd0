//! Documents of all types, small enough that their values meet: nested, in arrays, in arrays of arrays, missing.

use std::sync::Arc;

use annals_core::bson::spec::BinarySubtype;
use annals_core::bson::{self, Bson, Document, doc};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// Names of fields. Some are places of an array, too.
const NAMES: [&str; 5] = ["a", "b", "c", "0", "1"];

/// Letters that differ in case, have none, or whose other case is another letter than one would think.
pub const TEXTS: [&str; 26] = [
    "", "a", "b", "ab", "Ab", "AB", "a\0b", "ä", "äB", "Ä", "Z", "a.b", "b\n", "\n", "a\nb", "ß", "ẞ", "ſ", "s", "ς",
    "Σ", "İ", "ı", "I", "K", "ǅ",
];

fn number() -> BoxedStrategy<Bson> {
    const INT64: [i64; 9] = [
        0,
        1,
        5,
        9_007_199_254_740_992,
        9_007_199_254_740_993,
        -9_007_199_254_740_993,
        i64::MAX,
        i64::MAX - 1,
        i64::MIN,
    ];
    const DOUBLE: [f64; 15] = [
        0.0,
        -0.0,
        1.0,
        0.5,
        0.1,
        2.5,
        9_007_199_254_740_992.0,
        9_223_372_036_854_775_808.0,
        -9_223_372_036_854_775_808.0,
        -1e300,
        5e-324,
        f64::MAX,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    const DECIMAL: [&str; 16] = [
        "0",
        "-0",
        "1",
        "1.0",
        "0.1",
        "0.50",
        "1.000000000000000000000000000000001",
        "9223372036854775807",
        "9223372036854775808",
        "9007199254740993",
        "NaN",
        "Infinity",
        "-Infinity",
        "1E+6000",
        "-1E-6000",
        "1.797693134862315708145274237317044E+308",
    ];
    let decimal = |text: &str| Bson::Decimal128(text.parse().expect("a decimal"));
    prop_oneof![
        4 => (-2..4_i32).prop_map(Bson::Int32),
        2 => select(INT64.as_slice()).prop_map(Bson::Int64),
        2 => select(DOUBLE.as_slice()).prop_map(Bson::Double),
        2 => select(DECIMAL.as_slice()).prop_map(decimal),
    ]
    .boxed()
}

fn binary() -> BoxedStrategy<Bson> {
    let subtypes = vec![BinarySubtype::Generic, BinarySubtype::UserDefined(0x80), BinarySubtype::Md5];
    let bytes = prop::collection::vec(select(vec![0_u8, 1, 200]), 0..3);
    let short = (select(subtypes), bytes).prop_map(|(subtype, bytes)| bson::Binary { subtype, bytes });
    let uuid = select(vec![0_u8, 1, 255])
        .prop_map(|byte| bson::Binary { subtype: BinarySubtype::Uuid, bytes: [[0; 15].as_slice(), &[byte]].concat() });
    prop_oneof![2 => short, 1 => uuid].prop_map(Bson::Binary).boxed()
}

fn regular_expression() -> BoxedStrategy<Bson> {
    let text = |text: &str| text.to_owned().try_into().expect("without NUL");
    (select(vec!["a", "^a", "a$", "^", "a\\.b"]), select(vec!["", "i"]))
        .prop_map(move |(pattern, options)| (text(pattern), text(options)))
        .prop_map(|(pattern, options)| Bson::RegularExpression(bson::Regex { pattern, options }))
        .boxed()
}

/// Types that hardly anybody writes, and that others may have written.
fn old() -> BoxedStrategy<Bson> {
    let code = |text: &str| Bson::JavaScriptCode(text.to_owned());
    let scoped = |(text, n): (&str, i32)| {
        Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope { code: text.to_owned(), scope: doc! { "a": n } })
    };
    prop_oneof![
        select(vec!["a", "b"]).prop_map(|text| Bson::Symbol(text.to_owned())),
        select(vec!["a", "b"]).prop_map(code),
        (select(vec!["a", "b"]), 0..2_i32).prop_map(scoped),
        Just(Bson::Undefined),
    ]
    .boxed()
}

/// A value that is neither a document nor an array.
pub fn scalar() -> BoxedStrategy<Bson> {
    let times = vec![i64::MIN, -5, 0, 5, 1_700_000_000_000, i64::MAX];
    let timestamp = |(time, increment)| Bson::Timestamp(bson::Timestamp { time, increment });
    prop_oneof![
        24 => number(),
        6 => Just(Bson::Null),
        10 => select(TEXTS.as_slice()).prop_map(Bson::from),
        5 => any::<bool>().prop_map(Bson::Boolean),
        4 => select(times).prop_map(|time| bson::DateTime::from_millis(time).into()),
        3 => (select(vec![0, 1, u32::MAX]), 0..3_u32).prop_map(timestamp),
        5 => binary(),
        3 => select(vec![0_u8, 1, 255]).prop_map(|byte| bson::oid::ObjectId::from_bytes([byte; 12]).into()),
        3 => select(vec![Bson::MinKey, Bson::MaxKey]),
        1 => regular_expression(),
        1 => old(),
    ]
    .boxed()
}

/// A value of any type, with documents and arrays in it.
pub fn value() -> BoxedStrategy<Bson> {
    scalar()
        .prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                3 => scalar(),
                2 => prop::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
                2 => fields(inner).prop_map(Bson::Document),
            ]
        })
        .boxed()
}

fn fields(values: BoxedStrategy<Bson>) -> BoxedStrategy<Document> {
    let few = subsequence(NAMES[..3].to_vec(), 0..=3).prop_shuffle();
    let all = subsequence(NAMES.to_vec(), 0..=4).prop_shuffle();
    let names = prop_oneof![5 => few, 1 => all];
    let pairs = (names, prop::collection::vec(values, 4));
    pairs.prop_map(|(names, values)| names.into_iter().map(str::to_owned).zip(values).collect()).boxed()
}

/// Ids of all kinds, so that what is equal in everything else has an order over types.
fn id(place: usize) -> BoxedStrategy<Bson> {
    let n = place as i32;
    let mut uuid = [0_u8; 16];
    uuid[12..].copy_from_slice(&(place as u32).to_be_bytes());
    let bytes = bson::Binary { subtype: BinarySubtype::Uuid, bytes: uuid.to_vec() };
    let mut object = [0_u8; 12];
    object[..4].copy_from_slice(&(place as u32).to_be_bytes());
    prop_oneof![
        6 => Just(Bson::Int32(n)),
        2 => Just(Bson::Int64(n.into())),
        2 => Just(Bson::Double(f64::from(n) + 0.5)),
        4 => Just(Bson::String(format!("id-{n}"))),
        1 => Just(Bson::Binary(bytes)),
        1 => Just(bson::oid::ObjectId::from_bytes(object).into()),
        1 => Just(bson::DateTime::from_millis(n.into()).into()),
        1 => Just(Bson::Document(doc! { "a": n })),
    ]
    .boxed()
}

/// So many documents with different ids.
pub fn documents(count: usize) -> BoxedStrategy<Vec<Document>> {
    let ids: Vec<_> = (0..count).map(id).collect();
    let whole = |(id, fields): (Bson, Document)| {
        let mut whole = doc! { "_id": id };
        whole.extend(fields);
        whole
    };
    let full = subsequence(NAMES[..3].to_vec(), 2..=3).prop_shuffle();
    let full = (full, prop::collection::vec(value(), 3))
        .prop_map(|(names, values)| names.into_iter().map(str::to_owned).zip(values).collect());
    let fields = prop_oneof![3 => full, 1 => fields(value())];
    (ids, prop::collection::vec(fields, count))
        .prop_map(move |(ids, fields)| ids.into_iter().zip(fields).map(whole).collect())
        .boxed()
}

/// What documents hold, to be asked for: each value with the path that leads to it, with a place of an array in it or without.
#[derive(Debug, Clone)]
pub struct Held(Arc<[(String, Bson)]>);

impl Held {
    pub fn by(documents: &[Document]) -> Self {
        let mut held = vec![("a".to_owned(), Bson::Null)];
        for document in documents {
            for (name, value) in document {
                add(name.clone(), value, &mut held);
            }
        }
        Self(held.into())
    }

    /// A path and what it leads to in some document.
    pub fn pair(&self) -> BoxedStrategy<(String, Bson)> {
        let held = self.0.clone();
        (0..held.len()).prop_map(move |at| held[at].clone()).boxed()
    }

    /// A value.
    pub fn value(&self) -> BoxedStrategy<Bson> {
        self.pair().prop_map(|(_, value)| value).boxed()
    }
}

fn add(path: String, value: &Bson, held: &mut Vec<(String, Bson)>) {
    match value {
        // Refused in a condition.
        Bson::RegularExpression(_) | Bson::Undefined => return,
        Bson::Document(inner) => inner.iter().for_each(|(name, value)| add(format!("{path}.{name}"), value, held)),
        Bson::Array(inner) => {
            for (place, value) in inner.iter().enumerate() {
                let path = if place % 2 == 0 { path.clone() } else { format!("{path}.{place}") };
                add(path, value, held);
            }
        }
        _ => {}
    }
    held.push((path, value.clone()));
}
