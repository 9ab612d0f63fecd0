//! Queries over HTTP: Wow's query JSON, and the answers, as BSON and as JSON by the rules of records.

use bson::RawBsonRef;
use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};

use super::records::{
    Encoding, condition_of, number_of, read_projection, read_sort, write_condition, write_projection, write_sort,
};
use crate::fields::{fields, nested, unknown};
use crate::{Code, Condition, DocumentQuery, Invalid, Paged, Pagination};

/// Parses a query for a single document: `{"condition","projection","sort"}`, each of which is optional.
///
/// # Errors
/// `not_json`, `invalid_integer`, `invalid_body`, `invalid_condition`, `invalid_query`.
pub fn read_single_query(bytes: &[u8], encoding: Encoding) -> Result<DocumentQuery, Invalid> {
    read(bytes, encoding, &mut |_, path, _| Err(unknown(path)))
}

/// Parses a query for a list: as for a single document, with an additional `limit`; 0 for all.
///
/// # Errors
/// As [`read_single_query`].
pub fn read_list_query(bytes: &[u8], encoding: Encoding) -> Result<(DocumentQuery, u64), Invalid> {
    let mut limit = 0;
    let query = read(bytes, encoding, &mut |name, path, value| {
        let "limit" = name else { return Err(unknown(path)) };
        limit = number(path, value)?;
        Ok(())
    })?;
    Ok((query, limit))
}

/// Parses a query for a page: as for a single document, with an additional `pagination`, `{"index","size"}`; by default the first ten
/// documents.
///
/// # Errors
/// As [`read_single_query`].
pub fn read_paged_query(bytes: &[u8], encoding: Encoding) -> Result<(DocumentQuery, Pagination), Invalid> {
    let mut page = Pagination::default();
    let query = read(bytes, encoding, &mut |name, path, value| {
        let "pagination" = name else { return Err(unknown(path)) };
        fields(nested(path, value)?, path, |name, path, value| {
            match name {
                "index" => page.index = number(path, value)?,
                "size" => page.size = number(path, value)?,
                _ => return Err(unknown(path)),
            }
            Ok(())
        })
    })?;
    Ok((query, page))
}

/// Parses a count: a plain condition, as Wow accepts it, or `{"condition"}`.
///
/// # Errors
/// As [`read_single_query`].
pub fn read_count_query(bytes: &[u8], encoding: Encoding) -> Result<Condition, Invalid> {
    let document = encoding.document(bytes)?;
    if document.get("condition").is_ok_and(|inner| inner.is_some()) || document.is_empty() {
        return Ok(read(bytes, encoding, &mut |_, path, _| Err(unknown(path)))?.condition);
    }
    condition_of(encoding, "condition", RawBsonRef::Document(&document))
}

/// Parses the fields that every query has, and passes the others to `other`.
fn read<'o>(
    bytes: &[u8],
    encoding: Encoding,
    other: &mut (dyn FnMut(&str, &str, RawBsonRef<'_>) -> Result<(), Invalid> + 'o),
) -> Result<DocumentQuery, Invalid> {
    let mut query = DocumentQuery::default();
    fields(&encoding.document(bytes)?, "", |name, path, value| {
        match name {
            "condition" => query.condition = condition_of(encoding, path, value)?,
            "projection" => query.projection = read_projection(path, nested(path, value)?)?,
            "sort" => query.sort = read_sort(path, value)?,
            _ => return other(name, path, value),
        }
        Ok(())
    })?;
    Ok(query)
}

fn number(path: &str, value: RawBsonRef<'_>) -> Result<u64, Invalid> {
    number_of(path, value).map_err(|error| Invalid { code: Code::InvalidQuery, ..error })
}

/// Writes the body of a query for one document.
///
/// # Errors
/// `invalid_condition`, for values that BSON does not allow.
pub fn write_single_query(query: &DocumentQuery) -> Result<RawDocumentBuf, Invalid> {
    let mut body = write_condition(&query.condition)?;
    if let Some(projection) = write_projection(&query.projection) {
        body.append(cstr!("projection"), projection);
    }
    body.append(cstr!("sort"), write_sort(&query.sort));
    Ok(body)
}

/// Writes the body of a query for a list.
///
/// # Errors
/// As [`write_single_query`].
pub fn write_list_query(query: &DocumentQuery, limit: u64) -> Result<RawDocumentBuf, Invalid> {
    let mut body = write_single_query(query)?;
    body.append(cstr!("limit"), written(limit));
    Ok(body)
}

/// Writes the body of a query for a page.
///
/// # Errors
/// As [`write_single_query`].
pub fn write_paged_query(query: &DocumentQuery, page: Pagination) -> Result<RawDocumentBuf, Invalid> {
    let mut body = write_single_query(query)?;
    let mut pagination = RawDocumentBuf::new();
    pagination.append(cstr!("index"), written(page.index));
    pagination.append(cstr!("size"), written(page.size));
    body.append(cstr!("pagination"), pagination);
    Ok(body)
}

/// Clamps a number to int64. No number in the store exceeds int64, so a greater one has the same result as the maximum.
fn written(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Writes a list as a BSON answer: `{"list"}`. In JSON the answer is the plain array.
pub fn write_documents(documents: &[RawDocumentBuf]) -> RawDocumentBuf {
    let mut answer = RawDocumentBuf::new();
    answer.append(cstr!("list"), documents.iter().map(|document| &**document).collect::<RawArrayBuf>());
    answer
}

/// Writes a page: `{"total","list"}`.
pub fn write_paged(page: &Paged<RawDocumentBuf>) -> RawDocumentBuf {
    let mut answer = RawDocumentBuf::new();
    answer.append(cstr!("total"), written(page.total));
    answer.append(cstr!("list"), page.list.iter().map(|document| &**document).collect::<RawArrayBuf>());
    answer
}

/// Parses a list.
///
/// # Errors
/// A sentence, if the answer has another form.
pub fn read_documents(bytes: &[u8]) -> Result<Vec<RawDocumentBuf>, String> {
    list(RawDocument::from_bytes(bytes).map_err(|error| error.to_string())?)
}

/// Parses a page.
///
/// # Errors
/// As [`read_documents`].
pub fn read_paged(bytes: &[u8]) -> Result<Paged<RawDocumentBuf>, String> {
    let answer = RawDocument::from_bytes(bytes).map_err(|error| error.to_string())?;
    let total = answer.get_i64("total").map_err(|error| error.to_string())?;
    Ok(Paged { total: total.max(0).cast_unsigned(), list: list(answer)? })
}

fn list(answer: &RawDocument) -> Result<Vec<RawDocumentBuf>, String> {
    let list = answer.get_array("list").map_err(|error| error.to_string())?;
    let document = |value: Result<RawBsonRef<'_>, bson::error::Error>| match value {
        Ok(RawBsonRef::Document(document)) => Ok(document.to_owned()),
        other => Err(format!("{other:?} in a list of documents")),
    };
    list.into_iter().map(document).collect()
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::Projection;

    const JSON: Encoding = Encoding::Json;

    #[test]
    fn what_is_left_out_has_the_defaults_of_wow() {
        assert_eq!(read_single_query(b"{}", JSON), Ok(DocumentQuery::default()));
        assert_eq!(read_list_query(b"{}", JSON), Ok((DocumentQuery::default(), 0)));
        assert_eq!(read_paged_query(b"{}", JSON), Ok((DocumentQuery::default(), Pagination { index: 1, size: 10 })));
        let second = read_paged_query(br#"{"pagination":{"index":2}}"#, JSON).map(|(_, page)| page);
        assert_eq!(second, Ok(Pagination { index: 2, size: 10 }));
        assert_eq!(read_count_query(b"{}", JSON), Ok(Condition::All));
        let none = br#"{"projection":{"include":[],"exclude":[]},"sort":[],"condition":{}}"#;
        assert_eq!(read_single_query(none, JSON), Ok(DocumentQuery::default()));
    }

    #[test]
    fn a_count_takes_a_condition_alone_or_named() {
        let alone = br#"{"field":"state.n","operator":"EQ","value":5}"#;
        let named = [br#"{"condition":"#, &alone[..], b"}"].concat();
        let expected = Ok(Condition::eq("state.n", 5_i64));
        assert_eq!((read_count_query(alone, JSON), read_count_query(&named, JSON)), (expected.clone(), expected));
    }

    #[test]
    fn a_query_is_read_back_as_it_was_written() {
        let condition = Condition::and([Condition::eq("state.n", 5), Condition::owner_id("eva")]);
        let query = DocumentQuery::new(condition).descending("version").projection(Projection::without(["state.x"]));
        let bytes = |written: Result<RawDocumentBuf, Invalid>| written.expect("it is written").into_bytes();
        let single = bytes(write_single_query(&query));
        assert_eq!(read_single_query(&single, Encoding::Bson), Ok(query.clone()));
        assert_eq!(read_list_query(&bytes(write_list_query(&query, 7)), Encoding::Bson), Ok((query.clone(), 7)));
        let page = Pagination { index: 3, size: 4 };
        assert_eq!(read_paged_query(&bytes(write_paged_query(&query, page)), Encoding::Bson), Ok((query, page)));
        let found = Paged { total: 9, list: vec![rawdoc! { "id": 1 }, rawdoc! {}] };
        assert_eq!(read_paged(write_paged(&found).as_bytes()), Ok(found.clone()));
        assert_eq!(read_documents(write_documents(&found.list).as_bytes()), Ok(found.list));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let list = |body: &str| read_list_query(body.as_bytes(), JSON).expect_err(body);
        for (body, code, path) in [
            (r#"{"limit":-1}"#, Code::InvalidQuery, "limit"),
            (r#"{"limit":1.5}"#, Code::InvalidQuery, "limit"),
            (r#"{"pagination":{}}"#, Code::InvalidBody, "pagination"),
            (r#"{"condition":{"operator":"X"}}"#, Code::InvalidCondition, "condition.operator"),
            (r#"{"sort":[{"field":"a","direction":"UP"}]}"#, Code::InvalidBody, "sort[0].direction"),
            (r#"{"projection":{"include":["a"],"exclude":["b"]}}"#, Code::InvalidQuery, "projection"),
        ] {
            let refused = list(body);
            assert_eq!((refused.code, refused.path.as_str()), (code, path), "{body}");
        }
        let page = read_paged_query(br#"{"pagination":{"size":"x"}}"#, JSON).expect_err("no number");
        assert_eq!((page.code, page.path.as_str()), (Code::InvalidQuery, "pagination.size"));
        assert_eq!(read_single_query(br#"{"limit":1}"#, JSON).expect_err("unknown").path, "limit");
        assert_eq!(read_count_query(br#"{"condition":{},"limit":1}"#, JSON).expect_err("unknown").path, "limit");
        assert_eq!(read_count_query(br#"{"operator":"X"}"#, JSON).expect_err("unknown").path, "condition.operator");
    }
}
