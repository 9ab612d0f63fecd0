use super::*;

fn refused(json: &str) -> (Code, String) {
    let invalid = parse_commit(json.as_bytes()).expect_err(json);
    (invalid.code, invalid.path)
}

fn with(field: &str) -> String {
    format!(r#"{{"aggregate":{{"name":"a","id":"1"}},"events":[{{"type":"t","data":{{}}}}],{field}}}"#)
}

#[test]
fn a_whole_body_is_read_and_written_back() {
    let json = r#"{"aggregate":{"name":"order","id":"o-1"},"expected_version":3,"request_id":"r","command_id":"c","events":[{"type":"placed","data":{"z":1,"a":2.0},"id":"00000000-0000-0000-0000-000000000007","generation":2,"tags":["x"],"public":true,"metadata":{"z":"t","a":2.0},"time":"2026-03-01T12:00:00.000Z"}],"header":{"b":"1","a":"2"},"tenant_id":"t","owner_id":"o","space_id":"s","correlation_id":"k","causation_id":"u","wait":{"for":"logged","timeout_ms":250}}"#;
    let commit = parse_commit(json.as_bytes()).expect("valid");
    assert_eq!(commit.expected_version, ExpectedVersion::Exact(3));
    assert_eq!(commit.header[0].0, "b");
    assert_eq!(serde_json::to_string(&CommitBody::from(commit)).expect("writes"), json);
}

#[test]
fn bad_bodies_are_refused_with_code_and_path() {
    assert_eq!(refused("").0, Code::NotJson);
    assert_eq!(refused("{").0, Code::NotJson);
    assert_eq!(refused("{\"aggregate\":1,").0, Code::NotJson);
    assert_eq!(refused("[]").0, Code::InvalidBody);
    assert_eq!(refused("{}").0, Code::InvalidBody);
    assert_eq!(refused("\u{feff}{}").0, Code::NotJson);
    assert_eq!(refused(&with(r#""colour":1"#)), (Code::InvalidBody, "colour".into()));
    assert_eq!(refused(&with(r#""request_id":1"#)), (Code::InvalidBody, "request_id".into()));
    assert_eq!(refused(&with(r#""request_id":"a","request_id":"b""#)).0, Code::InvalidBody);
    assert_eq!(refused(&with(r#""expected_version":-1"#)), (Code::InvalidVersion, "expected_version".into()));
    assert_eq!(refused(&with(r#""expected_version":"new""#)).0, Code::InvalidVersion);
    assert_eq!(refused(&with(r#""expected_version":1.5"#)).0, Code::InvalidVersion);
    assert_eq!(refused(&with(r#""header":{"a":1}"#)), (Code::InvalidHeader, "header.a".into()));
    assert_eq!(refused(&with(r#""wait":{"for":"te a"}"#)), (Code::InvalidWait, "wait.for".into()));
    let event = |event: &str| format!(r#"{{"aggregate":{{"name":"a","id":"1"}},"events":[{event}]}}"#);
    assert_eq!(refused(&event(r#"{"type":"t"}"#)).0, Code::InvalidBody);
    assert_eq!(refused(&event(r#"{"type":"t","data":[]}"#)), (Code::InvalidData, "events[0].data".into()));
    let twice = event(r#"{"type":"t","data":{"x":{"k":1,"k":2}}}"#);
    assert_eq!(refused(&twice).0, Code::InvalidData);
    let wide = event(r#"{"type":"t","data":{"n":9223372036854775808}}"#);
    assert_eq!(refused(&wide), (Code::InvalidInteger, "events[0].data.n".into()));
    let wider = event(r#"{"type":"t","data":{"n":[1,123456789012345678901234567890]}}"#);
    assert_eq!(refused(&wider), (Code::InvalidInteger, "events[0].data.n[1]".into()));
    let widest = event(&format!(r#"{{"type":"t","data":{{"n":[1,{}]}}}}"#, "9".repeat(310)));
    assert_eq!(refused(&widest), (Code::InvalidInteger, "events[0].data.n[1]".into()));
    let no_json = event(&format!(r#"{{"type":"t","data":{{"n":[1,{}e9]}}}}"#, "9".repeat(310)));
    assert_eq!(refused(&no_json).0, Code::NotJson);
    assert_eq!(
        refused(&event(r#"{"type":"t","data":{},"time":"noon"}"#)),
        (Code::InvalidTime, "events[0].time".into())
    );
    assert_eq!(refused(&event(r#"{"type":"t","data":{},"id":"7"}"#)), (Code::InvalidId, "events[0].id".into()));
    let noted = event(r#"{"type":"t","data":{},"metadata":{"a":null}}"#);
    assert_eq!(refused(&noted), (Code::InvalidMetadata, "events[0].metadata".into()));
}
