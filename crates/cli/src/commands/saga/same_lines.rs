//! Converts a definition from TOML to JSON and keeps every value on its line, so that a refusal names the line of the file.

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

/// Returns the JSON.
///
/// # Errors
/// Why the text is not valid TOML, with the line.
pub fn json_of_toml(text: &str) -> Result<String, String> {
    let places = DeTable::parse(text).map_err(|error| format!("not TOML: {error}"))?;
    let values: Table = toml::from_str(text).map_err(|error| format!("not TOML: {error}"))?;
    let mut writer = Writer { text, json: String::new(), line: 1 };
    writer.table(places.get_ref(), &values);
    Ok(writer.json)
}

struct Writer<'t> {
    text: &'t str,
    json: String,
    line: usize,
}

impl Writer<'_> {
    fn table(&mut self, places: &DeTable<'_>, values: &Table) {
        let mut keys: Vec<_> = places.iter().collect();
        keys.sort_by_key(|(key, _)| key.span().start);
        self.json.push('{');
        for (n, (key, place)) in keys.into_iter().enumerate() {
            if n > 0 {
                self.json.push(',');
            }
            self.go_to(key.span().start);
            let name: &str = key.get_ref();
            self.json.push_str(&serde_json::Value::from(name).to_string());
            self.json.push(':');
            if let Some(value) = values.get(name) {
                self.value(place, value);
            }
        }
        self.json.push('}');
    }

    fn value(&mut self, place: &Spanned<DeValue<'_>>, value: &Value) {
        self.go_to(place.span().start);
        match (place.get_ref(), value) {
            (DeValue::Table(places), Value::Table(values)) => self.table(places, values),
            (DeValue::Array(places), Value::Array(values)) => {
                self.json.push('[');
                for (n, (place, value)) in places.iter().zip(values).enumerate() {
                    if n > 0 {
                        self.json.push(',');
                    }
                    self.value(place, value);
                }
                self.json.push(']');
            }
            (_, Value::Datetime(time)) => self.json.push_str(&format!("\"{time}\"")),
            // Texts and numbers always serialise to JSON.
            (_, value) => self.json.push_str(&serde_json::to_string(value).unwrap_or_default()),
        }
    }

    /// Emits line breaks up to the line of a place in the TOML.
    fn go_to(&mut self, at: usize) {
        let line = 1 + self.text.get(..at).map_or(0, |before| before.matches('\n').count());
        while self.line < line {
            self.json.push('\n');
            self.line += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use annals::sagas::SagaDefinition;

    use super::json_of_toml;

    const ORDER: &str = "correlate = \"$data.order_id\"\n\n[start]\non = [\"order_placed\"]\n\n[[steps]]\nname = \"pay\"\n\
        publish = { type = \"request_payment\", data = { total = \"$context.total\" } }\nawait = { on = [\"paid\"] }\nlimit_ms = 60000\n\n\
        [[steps]]\nname = \"ship\"\n[steps.publish]\ntype = \"ship\"\n";

    #[test]
    fn a_definition_in_toml_is_read_and_refused_with_its_line() {
        let json = json_of_toml(ORDER).expect("TOML");
        let read = SagaDefinition::read("order", json.as_bytes()).expect("a definition");
        assert_eq!(read.event_types(), ["order_placed", "paid"]);
        let wrong = ORDER.replace("type = \"ship\"", "type = \"no name\"");
        let json = json_of_toml(&wrong).expect("TOML");
        let refused = SagaDefinition::read("order", json.as_bytes()).expect_err("a wrong name");
        assert!(refused.to_string().contains("(line 15)"), "{refused}\n{json}");
        assert!(json_of_toml("a = [").expect_err("no TOML").contains("not TOML"));
    }
}
