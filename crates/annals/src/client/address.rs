//! Decides which IP addresses are on the public internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IP network: an address and a prefix length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    /// Parses a network such as `10.1.0.0/16`, or a single address.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is neither an address nor a network such as 10.1.0.0/16");
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => most,
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(wrong)?,
        };
        Ok(Self { address, bits })
    }

    /// Returns whether an address is in the network. An IPv4-mapped IPv6 address is treated as the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let mask = |bits: u32, of: u32| if bits == 0 { 0 } else { u128::MAX << (of - bits) };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = mask(self.bits, 32);
                u128::from(u32::from(own)) & mask == u128::from(u32::from(other)) & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = mask(self.bits, 128);
                u128::from(own) & mask == u128::from(other) & mask
            }
            _ => false,
        }
    }
}

/// Returns whether an address is on the public internet.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Returns whether the services that tell a machine of a cloud its secrets have this address, or may have it. Nothing else has a reason to
/// be called at such an address.
pub(super) fn is_of_metadata(address: IpAddr) -> bool {
    // Those of AWS over IPv6, of Alibaba and of Oracle. The others are link-local.
    const V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    const V4: [Ipv4Addr; 2] = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192)];
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local() || V4.contains(&address),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80 || address == V6,
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_broadcast()
        || address.is_documentation()
        || address.is_multicast();
    !(special
        || a == 0
        || a >= 240
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (b == 18 || b == 19)))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let [.., high, low] = parts;
    let embedded = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match parts[0] {
        // A NAT64 address leads to its embedded IPv4 address.
        0x64 if parts[1] == 0xff9b && parts[2..6] == [0; 4] => is_public_v4(embedded(high, low)),
        // So does a 6to4 address.
        0x2002 => is_public_v4(embedded(parts[1], parts[2])),
        // Teredo, benchmarking, documentation and other special-purpose ranges, which no partner uses.
        0x2001 if parts[1] < 0x200 || parts[1] == 0xdb8 => false,
        0x3fff => false,
        // Global unicast.
        first => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_global_unicast_addresses_are_public() {
        for public in ["8.8.8.8", "1.1.1.1", "193.0.6.139", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"] {
            assert!(is_public(public.parse().expect("an address")), "{public}");
        }
        for private in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(private.parse().expect("an address")), "{private}");
        }
    }

    #[test]
    fn services_of_metadata_are_known_however_their_addresses_are_written() {
        for of_metadata in
            ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254", "100.100.100.200", "192.0.0.192"]
        {
            assert!(is_of_metadata(of_metadata.parse().expect("an address")), "{of_metadata}");
        }
        for other in ["127.0.0.1", "10.0.0.1", "::1", "fd00::1", "100.100.100.201", "8.8.8.8"] {
            assert!(!is_of_metadata(other.parse().expect("an address")), "{other}");
        }
    }

    #[test]
    fn a_network_contains_its_addresses_however_they_are_written() {
        let network = Network::parse("10.1.0.0/16").expect("a network");
        for (address, is_in) in
            [("10.1.255.1", true), ("::ffff:10.1.0.1", true), ("10.2.0.1", false), ("fd00::1", false)]
        {
            assert_eq!(network.contains(address.parse().expect("an address")), is_in, "{address}");
        }
        assert!(Network::parse("::1").expect("one").contains(IpAddr::V6(Ipv6Addr::LOCALHOST)));
        assert!(Network::parse("0.0.0.0/0").expect("all").contains(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        for wrong in ["", "10.1", "10.0.0.0/33", "::1/129", "localhost"] {
            assert!(Network::parse(wrong).is_err(), "{wrong}");
        }
    }
}
