//! The pure parts of the browse view.

use std::sync::Arc;

use bson::{Bson, Document, RawDocumentBuf, doc};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    BrowsePage, CSV_HEADER, ExportFormat, ReplayFilter, ShownDocument, ViewPosition, browse_document, browse_id,
    browse_indexes, csv_line, json_line, number_of, percent, shown,
};
use crate::{Aggregate, CommitInfo, Data, RecordedEvent, TextLanguage, Timestamp, limits, valid_document};

fn event(data: &Document) -> RecordedEvent {
    let commit = CommitInfo {
        commit_id: Uuid::nil(),
        request_id: None,
        aggregate: Aggregate::new("order", "o-1"),
        version: 1,
        time: Timestamp::from_millis(1_000),
        tenant_id: "(0)".into(),
        owner_id: "owner".into(),
        space_id: "".into(),
        command_id: None,
        correlation_id: None,
        causation_id: None,
        header: Vec::new(),
        transaction: None,
        received: None,
    };
    RecordedEvent {
        sequence_number: 300,
        ordinal: 0,
        id: Uuid::from_u128(7),
        event_type: "placed".into(),
        generation: 2,
        data: Data::from_document(data).expect("a document"),
        tags: Vec::new(),
        public: false,
        metadata: None,
        time: Timestamp::from_millis(500),
        commit: Arc::new(commit),
    }
}

#[test]
fn ids_ascend_as_sequence_numbers_do_and_lead_back_to_them() {
    for (low, high) in [(0, 1), (255, 256), (u64::from(u32::MAX), 1 << 32), (1 << 40, u64::MAX)] {
        assert!(browse_id(low).bytes() < browse_id(high).bytes());
        assert_eq!(number_of(&browse_id(high).into()), Some(high));
    }
    assert_eq!(number_of(&bson::oid::ObjectId::from_bytes([1; 12]).into()), None);
    assert_eq!(number_of(&Bson::Int64(1)), None);
}

#[test]
fn a_document_expires_so_many_days_after_it_was_stored_if_at_all() {
    let document = browse_document(&event(&doc! {}), Some(90));
    let expires = document.get_datetime("ttl_expires_at").expect("it expires").timestamp_millis();
    assert_eq!(expires, 1_000 + 90 * 24 * 60 * 60 * 1_000);
    assert!(!browse_document(&event(&doc! {}), None).contains_key("ttl_expires_at"));
    assert_eq!(document.get_str("event_version").ok(), Some("2.0"));
    let metadata = document.get_document("metadata").expect("it is there");
    assert_eq!(metadata.get_str("user_id").ok(), Some("owner"));
    assert_eq!(metadata.get_str("service_name").ok(), Some("unknown"));
}

#[test]
fn an_event_of_the_past_expires_after_it_was_stored_and_not_before() {
    let imported = event(&doc! {});
    let id = (5_000_u128 << 80) | (0x7 << 76) | (0x2 << 62);
    let commit = CommitInfo { commit_id: Uuid::from_u128(id), ..(*imported.commit).clone() };
    let document = browse_document(&RecordedEvent { commit: Arc::new(commit), ..imported }, Some(1));
    assert_eq!(document.get_datetime("stored_at").map(|it| it.timestamp_millis()).ok(), Some(5_000));
}

#[test]
fn what_the_indexes_cannot_hold_is_kept_beside_the_flat_fields() {
    let long = "x".repeat(limits::ID_BYTES_MAX + 1);
    let data =
        doc! {"execution_id": &long, "pod_name": [1], "none": "german", "event_id": 1, "a.b": 2, "": 3, "plain": 4};
    let document = browse_document(&event(&data), None);
    let own = document.get_document("annals").and_then(|own| own.get_document("data")).expect("some are moved");
    let moved: Vec<_> = own.keys().map(String::as_str).collect();
    assert_eq!(moved, ["execution_id", "pod_name", "none", "event_id", "a.b", ""]);
    assert_eq!(document.get_i32("plain").ok(), Some(4));
    assert_eq!(document.get_str("event_id").ok(), Some(&*Uuid::from_u128(7).to_string()));
}

#[test]
fn the_deepest_data_becomes_a_document_that_a_store_takes() {
    let mut deep = doc! {"x": 1};
    for _ in 2..limits::DATA_DEPTH_MAX {
        deep = doc! { "metadata": deep };
    }
    let document = browse_document(&event(&deep), None);
    let raw = bson::RawDocumentBuf::try_from(&document).expect("BSON");
    assert_eq!(valid_document(&raw), Ok(()));
    let left_out = document.get_document("annals").and_then(|own| own.get_array("left_out")).expect("it is named");
    assert_eq!(left_out, &[Bson::from("metadata")]);
}

#[test]
fn a_filter_with_excluded_types_alone_is_empty() {
    let list = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    let excluding = ReplayFilter { exclude_event_types: list(&["a"]), ..ReplayFilter::default() };
    assert!(excluding.is_empty() && ReplayFilter::default().is_empty());
    assert_eq!(excluding.to_mongo_query(), doc! {"event_type": {"$nin": ["a"]}});
    let nothing = ReplayFilter { event_types: list(&[]), user_id: Some(String::new()), ..ReplayFilter::default() };
    assert!(nothing.is_empty());
    assert_eq!(nothing.to_mongo_query(), doc! {});
    let mut each = Vec::new();
    for field in ["event_ids", "event_types"] {
        each.push(json!({ field: ["x"] }));
    }
    for field in ["execution_id", "aggregate_id", "user_id", "service_name"] {
        each.push(json!({ field: "x" }));
    }
    for field in ["start_time", "end_time"] {
        each.push(json!({ field: "2026-03-01T12:00:00Z" }));
    }
    for filter in each {
        let read: ReplayFilter = serde_json::from_value(filter.clone()).expect("a filter");
        assert!(!read.is_empty(), "{filter}");
        assert_eq!(
            serde_json::to_value(&read).expect("JSON").as_object().map(serde_json::Map::len),
            Some(1),
            "{filter}"
        );
    }
}

#[test]
fn a_filter_becomes_the_query_of_integr8scode() {
    let filter: ReplayFilter = serde_json::from_value(json!({
        "event_ids": ["1", "2"], "execution_id": "e", "aggregate_id": "a", "event_types": ["t", "u"],
        "exclude_event_types": ["u"], "start_time": "1970-01-01T00:00:01Z", "end_time": "1970-01-01T00:00:02Z",
        "user_id": "ada", "service_name": "api"
    }))
    .expect("a filter");
    let at = |seconds: i64| bson::DateTime::from_millis(seconds * 1_000);
    let query = doc! {
        "event_id": {"$in": ["1", "2"]}, "execution_id": "e", "aggregate_id": "a", "metadata.user_id": "ada",
        "metadata.service_name": "api", "event_type": {"$in": ["t", "u"], "$nin": ["u"]},
        "timestamp": {"$gte": at(1), "$lte": at(2)},
    };
    assert_eq!(filter.to_mongo_query(), query);
}

#[test]
fn a_cell_of_an_export_never_becomes_a_formula() {
    for (text, cell) in [
        ("plain", "plain"),
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@a", "'@a"),
        ("\t=1", "'\t=1"),
        ("a,b", "\"a,b\""),
        ("=\"x\"", "\"'=\"\"x\"\"\""),
        ("two\nlines", "\"two\nlines\""),
    ] {
        let document = doc! {"event_id": "i", "event_type": "t", "aggregate_id": text, "metadata": {"user_id": "u", "service_name": "s"}};
        assert_eq!(csv_line(&raw(&document)), format!("i,t,,{cell},u,s,,\r\n"), "{text}");
    }
    assert_eq!(csv_line(&raw(&doc! {"status": "s", "message": "m"})), ",,,,,,s,m\r\n");
    assert_eq!(CSV_HEADER.split(',').count(), 8);
    assert!(ExportFormat::parse("xml").is_err());
}

#[test]
fn a_document_is_shown_with_dates_as_text_and_a_damaged_one_as_it_is() {
    let document = browse_document(&event(&doc! {"n": 1_i64, "at": bson::DateTime::from_millis(0)}), None);
    let value = shown(&document);
    assert_eq!(value["timestamp"], "1970-01-01T00:00:00.500Z");
    assert_eq!(value["at"], json!({"$date": "1970-01-01T00:00:00Z"}));
    assert_eq!((&value["n"], value.get("_id"), &value["annals"]["sequence_number"]), (&json!(1), None, &json!(300)));
    assert_eq!(shown(&doc! {})["damaged"], "event_id is missing");
    let wrong = shown(&doc! {"event_id": "x", "event_type": 7});
    assert_eq!(
        (&wrong["damaged"], &wrong["document"]["event_type"]),
        (&json!("event_type has the wrong type"), &json!(7))
    );
}

#[test]
fn a_line_of_an_export_is_the_document_as_it_is_shown() {
    let data = doc! {"n": 1_i64, "half": 0.5, "at": bson::DateTime::from_millis(0), "list": [1, {"a": "\"b\""}], "replay": "own"};
    let damaged = doc! {"event_id": "x", "event_type": 7, "timestamp": bson::DateTime::from_millis(0)};
    for document in [browse_document(&event(&data), Some(3)), damaged, doc! {}] {
        let line = json_line(&raw(&document));
        assert!(line.ends_with("}\n") && line.matches('\n').count() == 1, "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).expect("it is JSON"), shown(&document));
    }
    let (document, replay) = (raw(&browse_document(&event(&data), None)), json!({"id": "r"}));
    let line = ShownDocument::new(&document).with("replay", &replay).text();
    assert_eq!(line.matches("\"replay\"").count(), 1, "{line}");
    assert_eq!(serde_json::from_str::<Value>(&line).expect("it is JSON")["replay"], replay);
}

fn raw(document: &Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(document).expect("it is BSON")
}

#[test]
fn events_of_a_page_are_decoded_one_by_one() {
    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(tag = "event_type", rename_all = "snake_case")]
    enum Event {
        Placed { total: i64, timestamp: Timestamp },
        Paid {},
    }
    let other = |event_type: &str| RecordedEvent { event_type: event_type.into(), ..event(&doc! {"total": 8_i64}) };
    let documents = [
        browse_document(&event(&doc! {"total": 7_i64}), None),
        browse_document(&other("shipped"), None),
        doc! {"event_id": "x", "event_type": 7},
        browse_document(&other("paid"), None),
    ];
    let page = BrowsePage {
        items: documents.iter().map(shown).collect(),
        total: 4,
        total_is_bound: false,
        has_more: false,
        cursor: None,
        view: ViewPosition { position: 4, head: 4 },
    };
    let events: Vec<_> = page.typed::<Event>().map(Result::ok).collect();
    let placed = Event::Placed { total: 7, timestamp: Timestamp::from_millis(500) };
    assert_eq!(events, [Some(placed), None, None, Some(Event::Paid {})]);
}

#[test]
fn rates_have_two_decimals() {
    assert_eq!((percent(5, 7), percent(0, 0), percent(1, 3)), (71.43, 0.0, 33.33));
}

#[test]
fn the_indexes_are_those_of_integr8scode() {
    let indexes = browse_indexes(TextLanguage::English);
    let named: Vec<_> = indexes.iter().map(crate::Index::name).filter(|name| name.starts_with("idx_")).collect();
    assert_eq!(indexes.len(), 17);
    assert_eq!(named.len(), 14);
    let collection = crate::Collection { indexes, ..crate::Collection::new(super::EVENTS) };
    assert_eq!(collection.validate(), Ok(()));
}

#[test]
fn a_document_that_cannot_be_decoded_is_shown_as_an_empty_one() {
    let document = doc! {"event_id": "x", "event_type": "t", "timestamp": bson::DateTime::from_millis(0), "metadata": {"by": "zzzz"}};
    let mut bytes = raw(&document).into_bytes();
    let at = bytes.windows(4).position(|text| text == b"zzzz").expect("it is there");
    // This is no UTF-8.
    bytes[at] = 0xff;
    let broken = RawDocumentBuf::from_bytes(bytes).expect("its length is right");
    let (shown, replay) = (ShownDocument::new(&broken), json!({"id": "r"}));
    assert_eq!((shown.readable_text(), &shown.value()["damaged"]), (None, &json!("event_id is missing")));
    let line = serde_json::from_str::<Value>(&shown.with("replay", &replay).text()).expect("it is JSON");
    assert_eq!(line, json!({"damaged": "event_id is missing", "document": {}, "replay": {"id": "r"}}));
}
