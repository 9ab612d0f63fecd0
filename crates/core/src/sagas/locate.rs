//! Finds the line of a value in a JSON text, for error messages.

/// Returns the line, from 1, of the value at a path such as `steps[1].publish.type`, or of the last part of the path that exists.
pub(super) fn line_of(json: &str, path: &str) -> usize {
    let mut scan = Scan { bytes: json.as_bytes(), at: 0 };
    let parts = path.split(['.', '[', ']']).filter(|part| !part.is_empty());
    for part in parts {
        if !scan.enter(part) {
            break;
        }
    }
    scan.space();
    1 + scan.bytes[..scan.at.min(scan.bytes.len())].iter().filter(|byte| **byte == b'\n').count()
}

struct Scan<'t> {
    bytes: &'t [u8],
    at: usize,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace() || byte == b',' || byte == b':') {
            self.at += 1;
        }
    }

    /// Moves to the value of a field, or to an element. Does not move if there is none.
    fn enter(&mut self, part: &str) -> bool {
        self.space();
        let begin = self.at;
        let found = match self.peek() {
            Some(b'{') => self.field(part),
            Some(b'[') => part.parse().is_ok_and(|index| self.element(index)),
            _ => false,
        };
        if !found {
            self.at = begin;
        }
        found
    }

    fn field(&mut self, name: &str) -> bool {
        self.at += 1;
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return false;
            }
            let begin = self.at;
            self.skip();
            let is_it = serde_json::from_slice::<String>(&self.bytes[begin..self.at]).is_ok_and(|key| key == name);
            self.space();
            if is_it {
                return true;
            }
            self.skip();
        }
    }

    fn element(&mut self, index: usize) -> bool {
        self.at += 1;
        for _ in 0..index {
            self.space();
            self.skip();
        }
        self.space();
        self.peek().is_some_and(|byte| byte != b']')
    }

    /// Moves past a value.
    fn skip(&mut self) {
        let mut depth = 0_usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => self.text(),
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth == 0 => return,
                b'}' | b']' => {
                    depth -= 1;
                    self.at += 1;
                }
                b',' | b':' if depth == 0 => return,
                byte if depth == 0 && byte.is_ascii_whitespace() => return,
                _ => {
                    self.at += 1;
                    continue;
                }
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn text(&mut self) {
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::line_of;

    #[test]
    fn the_line_of_a_value_is_found_by_its_path() {
        let json = "{\n \"a\": {\"x\": \"}\\\"\", \"steps\": 1},\n \"steps\": [\n  {\"name\": \"one\"},\n  {\"name\": \"two\",\n   \"publish\": {\"type\": \"t\"}}\n ]\n}";
        for (path, line) in [
            ("", 1),
            ("a.x", 2),
            ("steps", 3),
            ("steps[0].name", 4),
            ("steps[1].name", 5),
            ("steps[1].publish.type", 6),
            ("steps[1].publish.nothing", 6),
            ("steps[7]", 3),
        ] {
            assert_eq!(line_of(json, path), line, "{path}");
        }
        for broken in ["", "{", "{\"a\"", "[1,", "{\"a\":"] {
            assert_eq!(line_of(broken, "a.b[3]"), 1, "{broken}");
        }
    }
}
