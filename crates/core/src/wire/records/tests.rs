use bson::{Bson, DateTime, doc, oid::ObjectId};

use super::*;
use crate::order::Direction;
use crate::{
    Code, Collection, Condition, Expected, Index, Invalid, Projection, RecordChange, RecordQuery, TextLanguage,
};

fn raw(document: bson::Document) -> bson::RawDocumentBuf {
    bson::RawDocumentBuf::try_from(&document).expect("a document")
}

/// One value of each BSON type, including those that JSON lacks.
fn every_type() -> bson::Document {
    doc! {
        "_id": ObjectId::from_bytes([7; 12]),
        "int32": 1, "int64": 2i64, "double": 0.5, "infinity": f64::INFINITY, "decimal": Bson::Decimal128("1.10".parse().expect("a decimal")),
        "date": DateTime::from_millis(-5), "binary": bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![1; 16] },
        "null": Bson::Null, "undefined": Bson::Undefined, "min": Bson::MinKey, "symbol": Bson::Symbol("s".into()),
        "timestamp": Bson::Timestamp(bson::Timestamp { time: 1, increment: 2 }), "code": Bson::JavaScriptCode("x".into()),
        "literal": { "$date": "no date", "a.b": [1, { "$oid": 5 }] },
    }
}

fn conditions() -> Vec<Condition> {
    vec![
        Condition::All,
        Condition::eq("a", every_type()),
        Condition::and([
            Condition::ne("a", Bson::Null),
            Condition::or([Condition::exists("b"), Condition::missing("c.d")]),
        ]),
        Condition::nor([
            Condition::between("a", 1, 2.5),
            Condition::is_in("a", ["x", "y"]),
            Condition::not_in("b", [1]),
        ]),
    ]
}

#[test]
fn requests_survive_bson_with_every_type() {
    let mut changes =
        vec![RecordChange::insert("c", raw(every_type())), RecordChange::put("c", raw(doc! { "_id": 1 }))];
    for condition in conditions() {
        changes.push(RecordChange::replace_if("c", raw(doc! {}), Expected::Matching(condition.clone())));
        changes.push(RecordChange::delete_if("d", DateTime::from_millis(1), Expected::AbsentOr(condition.clone())));
        let written = write_condition(&condition).expect("it is written");
        assert_eq!(read_condition(written.as_bytes(), Encoding::Bson).as_ref(), Ok(&condition));
        let query = RecordQuery::new("c").matching(condition.clone()).descending("a.b").ascending("c").limit(7);
        for projection in [Projection::Whole, Projection::only(["a", "b.c"]), Projection::without(["a"])] {
            let query = RecordQuery { after: Some(crate::Cursor::new("x")), ..query.clone().projection(projection) };
            let written = write_query(&query).expect("it is written");
            assert_eq!(read_query("c", written.as_bytes(), Encoding::Bson).as_ref(), Ok(&query));
        }
        let index = Index::ordered([("a", Direction::Ascending), ("b", Direction::Descending)]).named("i").unique();
        let expiring = Index::on("t").sparse().partial(condition).expires_after_seconds(u32::MAX);
        let words = Index::text(["w", "x.y"]).language(TextLanguage::Turkish);
        let collection = Collection::new("c").index(index).index(expiring).with_feed();
        let collection = collection.index(words).index(Index::hashed("h").sparse());
        let written = write_collection(&collection).expect("it is written");
        assert_eq!(read_collection("c", written.as_bytes(), Encoding::Bson).as_ref(), Ok(&collection));
    }
    changes.push(RecordChange::delete_if("c", "x", Expected::Present));
    changes.push(RecordChange::check("c", every_type(), Expected::Absent));
    changes.push(RecordChange::check("c", 1, Expected::Revision(9)));
    let fields = [("a.b", every_type().into()), ("c", Bson::Null)];
    changes.push(RecordChange::set_if("c", 1, fields, Expected::Present).unset(["d", "e.f"]));
    changes.push(RecordChange::set_if("c", 1, [], Expected::Absent).unset(["d"]));
    changes.push(RecordChange::delete_if("c", every_type(), Expected::Revision(3)));
    let written = write_changes(&changes).expect("it is written");
    assert_eq!(format!("{:?}", read_changes(written.as_bytes(), Encoding::Bson)), format!("Ok({changes:?})"));
}

#[test]
fn json_means_what_its_media_type_says() {
    let json = br#"{"changes":[{"insert":{"collection":"c","document":{"_id":{"$oid":"070707070707070707070707"},"n":1}}},
        {"delete":{"collection":"c","id":{"$oid":"070707070707070707070707"},"expected":{"matching":{"field":"at","operator":"LT","value":{"$date":"1970-01-01T00:00:00.005Z"}}}}}]}"#;
    let id = ObjectId::from_bytes([7; 12]);
    let expected = Expected::Matching(Condition::lt("at", DateTime::from_millis(5)));
    let delete = RecordChange::delete_if("c", id, expected);
    let literal = doc! { "_id": { "$oid": "070707070707070707070707" }, "n": 1i64 };
    let plain = vec![RecordChange::insert("c", raw(literal)), delete.clone()];
    assert_eq!(read_changes(json, Encoding::Json), Ok(plain));
    let extended = vec![RecordChange::insert("c", raw(doc! { "_id": id, "n": 1i64 })), delete];
    assert_eq!(read_changes(json, Encoding::ExtendedJson), Ok(extended));
    assert_eq!(extended_value("\"7\""), Ok(Bson::String("7".into())));
    assert_eq!(extended_value(" 7 "), Ok(Bson::Int64(7)));
    assert_eq!(extended_value(r#"{"a":{"$numberInt":"7"}}"#), Ok(doc! { "a": 7 }.into()));
    let exact =
        Bson::from(doc! { "z": 1, "a": [2i64, 0.5, DateTime::from_millis(5), { "b": -1 }], "s": "x", "n": Bson::Null });
    let text = serde_json::to_string(&ExactJson(&exact)).expect("it is JSON");
    assert!(text.starts_with(r#"{"z":{"$numberInt":"1"},"a":[2,0.5,"#), "{text}");
    assert_eq!(extended_value(&text), Ok(exact));
    for wrong in ["", "x", "1,\"b\":2", "1}", r#"{"$oid":1}"#, r#"{"$date":"x"}"#, "99999999999999999999"] {
        assert!(extended_value(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn an_index_with_an_option_that_its_kind_cannot_have_is_refused_with_its_place() {
    let declared = |options: &str| {
        let body =
            format!(r#"{{"indexes":[{{"fields":[{{"field":"a"}}]}},{{"fields":[{{"field":"b"}}],{options}}}]}}"#);
        read_collection("c", body.as_bytes(), Encoding::Json)
    };
    for wrong in [
        r#""text":true,"unique":true"#,
        r#""text":true,"sparse":true"#,
        r#""text":true,"hashed":true"#,
        r#""text":true,"expires_after_seconds":5"#,
        r#""text":true,"partial":{"field":"b","operator":"EQ","value":1}"#,
        r#""text":true,"language":"klingon""#,
        r#""language":"english""#,
        r#""hashed":true,"unique":true"#,
        r#""hashed":true,"expires_after_seconds":5"#,
    ] {
        let error = declared(wrong).expect_err(wrong);
        assert_eq!((error.code, &*error.path), (Code::InvalidCollection, "indexes[1]"), "{wrong}");
    }
    let english = declared(r#""text":true,"language":"english""#).expect("it is one");
    assert_eq!(english.indexes[1], Index::text(["b"]).language(TextLanguage::English).into());
}

#[test]
fn every_refusal_says_where_and_what() {
    let deep = |open: &str, close: &str| format!("{}{{}}{}", open.repeat(90), close.repeat(90));
    let nested = format!(r#"{{"condition":{}}}"#, deep(r#"{"operator":"NOR","children":["#, "]}"));
    let document =
        format!(r#"{{"changes":[{{"insert":{{"collection":"c","document":{}}}}}]}}"#, deep(r#"{"a":["#, "]}"));
    let change = |change: &str| format!(r#"{{"changes":[{change}]}}"#);
    let insert = |document: &str| change(&format!(r#"{{"insert":{{"collection":"c","document":{document}}}}}"#));
    let delete = |rest: &str| change(&format!(r#"{{"delete":{{"collection":"c",{rest}}}}}"#));
    let batches = [
        ("{".to_owned(), Code::NotJson, ""),
        ("[]".to_owned(), Code::InvalidBody, ""),
        (r#"[["x"]]"#.to_owned(), Code::InvalidBody, ""),
        ("{}".to_owned(), Code::InvalidBody, "changes"),
        (r#"{"changes":[],"more":1}"#.to_owned(), Code::InvalidBody, "more"),
        (r#"{"changes":[],"changes":[]}"#.to_owned(), Code::InvalidBody, ""),
        (r#"{"changes":{}}"#.to_owned(), Code::InvalidBody, "changes"),
        (change("[]"), Code::InvalidBody, "changes[0]"),
        (change("{}"), Code::InvalidBody, "changes[0]"),
        (change(r#"{"put":{}}"#), Code::InvalidBody, "changes[0].put"),
        (change(r#"{"insert":{"document":{}}}"#), Code::InvalidBody, "changes[0].insert.collection"),
        (change(r#"{"insert":{"collection":"c"}}"#), Code::InvalidBody, "changes[0].insert.document"),
        (change(r#"{"replace":{"collection":"c","document":{}}}"#), Code::InvalidBody, "changes[0].replace.expected"),
        (change(r#"{"insert":{"collection":["c"],"document":{}}}"#), Code::InvalidBody, "changes[0].insert.collection"),
        (insert("[1]"), Code::InvalidRecord, "changes[0].insert.document"),
        (insert(r#"{"a":1,"a":2}"#), Code::InvalidRecord, "changes[0].insert.document"),
        (insert(r#"{"a":{"b":9223372036854775808}}"#), Code::InvalidInteger, "changes[0].insert.document.a.b"),
        (insert(r#"{"a":1},"expected":"present""#), Code::InvalidBody, "changes[0].insert.expected"),
        (document, Code::InvalidRecord, "changes[0].insert.document"),
        (delete(r#""id":1"#), Code::InvalidBody, "changes[0].delete.expected"),
        (delete(r#""expected":"present""#), Code::InvalidBody, "changes[0].delete.id"),
        (delete(r#""id":{"$oid":"x"},"expected":"present""#), Code::InvalidBody, "changes[0].delete.id"),
        (delete(r#""id":1,"expected":"gone""#), Code::InvalidBody, "changes[0].delete.expected"),
        (delete(r#""id":1,"expected":{"revision":-1}"#), Code::InvalidBody, "changes[0].delete.expected.revision"),
        (delete(r#""id":1,"expected":{"revision":1,"matching":{}}"#), Code::InvalidBody, "changes[0].delete.expected"),
        (
            delete(r#""id":1,"expected":{"matching":{"operator":"LIKE"}}"#),
            Code::InvalidCondition,
            "changes[0].delete.expected.matching.operator",
        ),
    ];
    for (json, code, path) in batches {
        refused(read_changes(json.as_bytes(), Encoding::Json).expect_err(&json), code, path, &json);
    }
    let queries = [
        (nested.as_str(), Code::InvalidCondition, "condition.children[0]"),
        (r#"{"condition":[]}"#, Code::InvalidBody, "condition"),
        (r#"{"condition":{"field":"a","operator":"IN"}}"#, Code::InvalidCondition, "condition"),
        (r#"{"condition":{"feld":"a"}}"#, Code::InvalidCondition, "condition.feld"),
        (r#"{"condition":{"operator":"AND","children":[{},5]}}"#, Code::InvalidCondition, "condition.children[1]"),
        (
            r#"{"condition":{"field":"a","operator":"EQ","value":{"$date":"x"}}}"#,
            Code::InvalidCondition,
            "condition.value",
        ),
        (r#"{"limit":"7"}"#, Code::InvalidBody, "limit"),
        (r#"{"limit":7.5}"#, Code::InvalidBody, "limit"),
        (r#"{"after":7}"#, Code::InvalidBody, "after"),
        (r#"{"sort":[{"field":"a","direction":"UP"}]}"#, Code::InvalidBody, "sort[0].direction"),
        (r#"{"sort":["a"]}"#, Code::InvalidBody, "sort[0]"),
        (r#"{"projection":{"include":["a"],"exclude":["b"]}}"#, Code::InvalidQuery, "projection"),
        (r#"{"projection":{"include":[1]}}"#, Code::InvalidBody, "projection.include[0]"),
    ];
    for (json, code, path) in queries {
        refused(read_query("c", json.as_bytes(), Encoding::Json).expect_err(json), code, path, json);
    }
    for (json, path) in [
        (r#"{"indexes":[{}]}"#, "indexes[0].fields"),
        (r#"{"indexes":[{"fields":[{}]}]}"#, "indexes[0].fields[0].field"),
        (r#"{"indexes":[{"fields":[],"unique":1}]}"#, "indexes[0].unique"),
        (r#"{"indexes":[{"fields":[],"expires_after_seconds":4294967296}]}"#, "indexes[0].expires_after_seconds"),
    ] {
        refused(read_collection("c", json.as_bytes(), Encoding::Json).expect_err(json), Code::InvalidBody, path, json);
    }
}

#[test]
fn a_declaration_that_means_nothing_is_refused_where_it_stands() {
    let declared = |json: &str| {
        let read = read_collection("c", json.as_bytes(), Encoding::Json);
        read.and_then(|collection| collection.validate().map(|()| collection))
    };
    let words = r#"{"fields":[{"field":"a"}],"text":true}"#;
    let cases = [
        (r#"{"fields":[{"field":"a"},{"field":"b","direction":"ASC"}],"text":true}"#, "fields[1].direction", "leave"),
        (r#"{"text":true,"fields":[{"field":"a","direction":"DESC"}]}"#, "fields[0].direction", "leave"),
        (r#"{"fields":[]}"#, "", "name 1 to 32"),
        (r#"{"fields":[{"field":"a"}],"name":""}"#, "", "needs a name"),
    ];
    for (index, path, sentence) in cases {
        let json = format!(r#"{{"indexes":[{words},{index}]}}"#);
        let error = declared(&json).expect_err(index);
        let path = format!("indexes[1].{path}");
        refused(error.clone(), Code::InvalidCollection, path.trim_end_matches('.'), index);
        assert!(error.message.contains(sentence), "{error}");
    }
    let two =
        declared(r#"{"indexes":[{"fields":[{"field":"a"}],"text":true},{"fields":[{"field":"b"}],"text":true}]}"#);
    let error = two.expect_err("there can be one");
    refused(error.clone(), Code::InvalidCollection, "indexes[1]", "two");
    assert!(error.message.contains("give it all fields"), "{error}");
    // A collection in an answer can be declared again.
    let one = declared(&format!(r#"{{"indexes":[{words}]}}"#)).expect("it is one");
    let shown = collection(&one).expect("it is written");
    let indexes = shown.get("indexes").ok().flatten().expect("indexes");
    let mut again = bson::RawDocumentBuf::new();
    again.append(bson::cstr!("indexes"), indexes);
    assert_eq!(read_collection("c", again.as_bytes(), Encoding::Bson), Ok(one));
}

fn refused(error: Invalid, code: Code, path: &str, what: &str) {
    assert_eq!(error.code, code, "{what}: {error}");
    // A JSON parser locates a duplicate key or excessive nesting by the path of the object that contains it.
    assert!(error.path == path || (!path.is_empty() && error.path.starts_with(path)), "{what}: {error}");
    assert!(!error.message.is_empty(), "{what}");
}

#[test]
fn bson_that_is_nested_too_deep_is_refused_before_it_overflows_a_stack() {
    const LEVELS: i32 = 200_000;
    let beginnings = (1..=LEVELS).rev().flat_map(|level| [&(5 + 8 * level).to_le_bytes()[..], &[3, b'a', 0]].concat());
    let ends = std::iter::repeat_n(0, LEVELS as usize);
    let deep: Vec<u8> = beginnings.chain([5, 0, 0, 0, 0]).chain(ends).collect();
    let deep = bson::RawDocument::from_bytes(&deep).expect("its outermost length is right");
    let mut id = bson::RawDocumentBuf::new();
    id.append(bson::cstr!("id"), deep);
    assert_eq!(read_id(id.as_bytes(), Encoding::Bson).expect_err("too deep").code, Code::InvalidBody);
    let scope = bson::RawDocumentBuf::from_bytes(deep.as_bytes().to_vec()).expect("a document");
    let mut record = raw(doc! { "_id": 1 });
    record.append(bson::cstr!("code"), bson::RawJavaScriptCodeWithScope { code: "x".to_owned(), scope });
    assert_eq!(crate::valid_document(&record).expect_err("too deep").code, Code::InvalidRecord);
    assert_eq!(Condition::from_bson(deep).expect_err("no condition").code, Code::InvalidCondition);
    let children = (0..200).fold(Condition::All, |inner, _| Condition::Nor(vec![inner])).to_bson().expect("written");
    assert_eq!(Condition::from_bson(&children).expect_err("too deep").code, Code::InvalidCondition);
}
