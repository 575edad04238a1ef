//! Rows of the commands for sorted sets of places. The columns are the fields of `Row`.

macro_rules! geo_rows {
    ($with:ident) => { $with! { "geo";
    "geoadd", -5, Data(geo::geoadd), GROW, [first(RW | UPDATE)], "geo", Event::Named("zadd"),
        "3.2.0", "O(log(N)) for each member", "Adds members at places, or moves them",
        "key condition:[NX|XX] [change:CH] longitude:double latitude:double member \
         [longitude:double latitude:double member ..]";
    "geodist", -4, Data(geo::geodist), READ, [first(RO | ACCESS)], "geo", Event::None,
        "3.2.0", "O(log(N))", "Returns the distance between two members",
        "key member1 member2 unit:[M|KM|FT|MI]";
    "geohash", -2, Data(geo::geohash), READ, [first(RO | ACCESS)], "geo", Event::None,
        "3.2.0", "O(log(N)) for each member", "Returns the places of members as geohashes",
        "key [member ..]";
    "geopos", -2, Data(geo::geopos), READ, [first(RO | ACCESS)], "geo", Event::None,
        "3.2.0", "O(log(N)) for each member", "Returns the longitudes and latitudes of members",
        "key [member ..]";
    "georadius", -6, Data(geo_search::georadius), GROW,
        [
            first(RO | ACCESS),
            one_behind("STORE", 6, OW | UPDATE).found_by(finders::radius_store),
            one_behind("STOREDIST", 6, OW | UPDATE).found_by(finders::found_already)
        ],
        "geo", Event::Stored("georadiusstore"),
        "3.2.0", "O(N+log(M)) with N the members in the cells around the circle, M all",
        "Finds members within a distance of a place, and stores them if it is to",
        "key longitude:double latitude:double radius:double unit:(M|KM|FT|MI) [WITHCOORD] \
         [WITHDIST] [WITHHASH] count:[(COUNT count) [ANY]] order:[ASC|DESC] [STORE key@1] \
         [STOREDIST key@2]";
    "georadius_ro", -6, Data(geo_search::georadius_ro), READ, [first(RO | ACCESS)],
        "geo", Event::None,
        "3.2.10", "O(N+log(M)) with N the members in the cells around the circle, M all",
        "Finds members within a distance of a place",
        "key longitude:double latitude:double radius:double unit:(M|KM|FT|MI) [WITHCOORD] \
         [WITHDIST] [WITHHASH] count:[(COUNT count) [ANY]] order:[ASC|DESC]";
    "georadiusbymember", -5, Data(geo_search::georadiusbymember), GROW,
        [
            first(RO | ACCESS),
            one_behind("STORE", 5, OW | UPDATE).found_by(finders::radius_store),
            one_behind("STOREDIST", 5, OW | UPDATE).found_by(finders::found_already)
        ],
        "geo", Event::Stored("georadiusstore"),
        "3.2.0", "O(N+log(M)) with N the members in the cells around the circle, M all",
        "Finds members within a distance of another, and stores them if it is to",
        "key member radius:double unit:(M|KM|FT|MI) [WITHCOORD] [WITHDIST] [WITHHASH] \
         count:[(COUNT count) [ANY]] order:[ASC|DESC] [STORE key@1] [STOREDIST key@2]";
    "georadiusbymember_ro", -5, Data(geo_search::georadiusbymember_ro), READ,
        [first(RO | ACCESS)], "geo", Event::None,
        "3.2.10", "O(N+log(M)) with N the members in the cells around the circle, M all",
        "Finds members within a distance of another",
        "key member radius:double unit:(M|KM|FT|MI) [WITHCOORD] [WITHDIST] [WITHHASH] \
         count:[(COUNT count) [ANY]] order:[ASC|DESC]";
    "geosearch", -7, Data(geo_search::geosearch), READ, [first(RO | ACCESS)], "geo", Event::None,
        "6.2.0", "O(N+log(M)) with N the members in the cells around the shape, M all",
        "Finds members in a circle or a box",
        "key from:(FROMMEMBER member|FROMLONLAT longitude:double latitude:double) \
         by:(circle:((BYRADIUS radius:double) unit:(M|KM|FT|MI))|box:((BYBOX width:double) \
         height:double unit:(M|KM|FT|MI))) order:[ASC|DESC] count:[(COUNT count) [ANY]] \
         [WITHCOORD] [WITHDIST] [WITHHASH]";
    "geosearchstore", -8, Data(geo_search::geosearchstore), GROW,
        [first(OW | UPDATE), at(2, RO | ACCESS)], "geo", Event::Stored("geosearchstore"),
        "6.2.0", "O(N+log(M)) with N the members in the cells around the shape, M all",
        "Stores the members in a circle or a box",
        "destination source from:(FROMMEMBER member|FROMLONLAT longitude:double latitude:double) \
         by:(circle:((BYRADIUS radius:double) unit:(M|KM|FT|MI))|box:((BYBOX width:double) \
         height:double unit:(M|KM|FT|MI))) order:[ASC|DESC] count:[(COUNT count) [ANY]] \
         [STOREDIST]";
    } };
}
pub(crate) use geo_rows;
