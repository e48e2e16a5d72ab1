"""Coefficients of sm_90's multi-function unit, fitted to an H200's results (evals/studies/emulator/unit_survey.py).

Each function is a table of quadratics, `c0 + c1 * t + c2 * s(t)` in fixed point, as Oberman and Siu describe the unit
("A High-Performance Area-Efficient Multifunction Interpolator", ARITH 2005): t is the part of the mantissa below the
index, s its truncated square (`unit.py`). They give the recorded bits of all 2^23 mantissas (2^24 for the roots, 2^25
angles). A linear program found each row from the results alone, and left whole numbers of 26, 16 and 10 bits (more for
sin and tanh): the hardware's own.
"""

from __future__ import annotations

from typing import NamedTuple


class Table(NamedTuple):
    """Rows `c0.c1.c2` in hexadecimal, and what they are worth.

    In units of 2^-17 of the result's last place: c0 * 2^shift + constant, c1 * slope, c2 * curve; `slope` and `curve`
    carry the signs.
    """

    shift: int
    constant: int
    slope: int
    curve: int
    rows: str

    def coefficients(self) -> list[tuple[int, int, int]]:
        """(value at t = 0, factor of t, factor of s(t)) of each row."""
        parts = (tuple(int(digits, 16) for digits in row.split(".")) for row in self.rows.split())
        return [((c0 << self.shift) + self.constant, c1 * self.slope, c2 * self.curve) for c0, c1, c2 in parts]


TABLES = {
    "rcp": Table(15, 8093, -2, 4,
        "2000000.fffe.3f5 1f80fe2.fc0a.3dd 1f03f06.f82d.3c6 1e88cb5.f467.3b1 1e0f83e.f0b6.39b 1d980f8.ed1b.386 "
        "1d22638.e995.373 1cae75a.e622.35f 1c3c3c4.e2c3.34d 1bcbade.df77.33b 1b5cc11.dc3d.329 1aef6cb.d914.317 "
        "1a83a85.d5fd.306 1a196b4.d2f7.2f6 19b0ad3.d001.2e6 1949662.cd1b.2d7 18e38e5.ca44.2c7 187f1e2.c77c.2b8 "
        "181c0e2.c4c3.2aa 17ba572.c218.29d 1759f23.bf7b.290 16fad89.bceb.282 169d037.ba69.277 16406ca.b7f3.26a "
        "15e50d9.b589.25d 158ae06.b32c.252 1531dee.b0da.246 14da036.ae94.23c 1483486.ac59.231 142da81.aa28.225 "
        "13d91d5.a803.21c 1385a2b.a5e7.211 1333335.a3d6.207 12e1ca1.a1cf.1fe 1291620.9fd1.1f5 1241f6b.9ddc.1ea "
        "11f3833.9bf1.1e2 11a6034.9a0f.1da 1159724.9835.1d1 110dcc1.9664.1c9 10c30c5.949b.1c1 10792f1.92da.1b9 "
        "1030305.9121.1b1 fe80c2.8f70.1aa fa0bea.8dc6.1a2 f5a443.8c24.19c f14992.8a88.193 ecfb9e.88f4.18d "
        "e8ba31.8767.186 e48511.85e0.17f e05c0c.8460.179 dc3ef0.82e7.173 d82d85.8174.16e d4279c.8006.166 "
        "d02d04.7e9f.161 cc3d8e.7d3e.15c c8590d.7be2.155 c47f52.7a8d.151 c0b02e.793c.14b bceb78.77f1.146 "
        "b93107.76ab.140 b580b0.756b.13c b1da49.742f.136 ae3da9.72f8.131 aaaaac.71c7.12e a7212c.709a.129 "
        "a3a100.6f71.123 a02a04.6e4d.11f 9cbc17.6d2e.11b 995712.6c13.117 95fad6.6afc.112 92a73f.69ea.10f "
        "8f5c2b.68db.10a 8c197b.67d1.107 88df0e.66ca.102 85acc6.65c8.100 828285.64c9.fb 7f602a.63ce.f8 7c459a.62d6.f3 "
        "7932b6.61e2.f0 762764.60f2.ed 732388.6005.e9 702705.5f1c.e7 6d31c1.5e35.e2 6a43a1.5d52.df 675c8d.5c73.de "
        "647c6b.5b96.da 61a322.5abc.d6 5ed09a.59e6.d4 5c04bb.5912.d0 593f6b.5841.cd 568098.5774.cc 53c827.56a8.c7 "
        "511604.55e0.c5 4e6a19.551b.c4 4bc450.5458.c1 492494.5397.bd 468ad1.52d9.ba 43f6f3.521e.b8 4168e3.5165.b6 "
        "3ee092.50af.b4 3c5de9.4ffb.b2 39e0d7.4f49.af 37694a.4e9a.ad 34f72e.4ded.ab 328a71.4d42.a9 302304.4c99.a6 "
        "2dc0d3.4bf3.a5 2b63ce.4b4e.a1 290be4.4aac.a0 26b904.4a0c.9f 246b1f.496d.9b 222224.48d1.9a 1fde04.4837.99 "
        "1d9eaf.479e.96 1b6418.4708.95 192e2c.4673.93 16fcdf.45e0.91 14d024.454f.8f 12a7e8.44c0.8f 108423.4432.8c "
        "e64c4.43a6.8a c49bd.431c.89 a3301.4293.87 82084.420c.85 61239.4187.84 40811.4103.83 20203.4081.82 "),
    "rsqrt": Table(15, 32767, -2, 8,
        "1fffffe.fffb.2f2 1f817ae.fa18.2d5 1f05d90.f46f.2ba 1e8cfe4.eefb.2a0 1e16d09.e9bb.288 1da336e.e4ab.271 "
        "1d3219a.dfc9.25b 1cc3626.db13.246 1c56fbc.d687.232 1becd13.d222.21f 1b84cf5.cde4.20e 1b1ee40.c9c9.1fc "
        "1abafd3.c5d1.1ec 1a590a7.c1fa.1dc 19f8fb4.be42.1cd 199ac09.baa8.1be 193e4b7.b72b.1b1 18e38e4.b3ca.1a4 "
        "188a7b1.b082.197 1833056.ad54.18b 17dd20b.aa3e.17f 1788c12.a73f.174 1735db6.a457.16a 16e464a.a184.160 "
        "1694526.9ec5.156 16459ac.9c1a.14c 15f833c.9982.143 15ac145.96fc.13a 1561337.9487.131 1517889.9224.12a "
        "14cf0b5.8fd0.122 1487b41.8d8d.11b 14417af.8b58.113 13fc588.8932.10c 13b8457.871a.106 13753b5.850f.ff "
        "1333334.8311.f8 12f226d.8120.f2 12b20ff.7f3b.ec 1272e86.7d62.e7 1234aad.7b94.e1 11f7513.79d1.dc "
        "11bad68.7819.d7 117f356.766b.d2 114468c.74c7.cd 110a6bb.732d.c9 10d139b.719c.c4 1098cdd.7013.bf "
        "106123f.6e94.bb 102a378.6d1d.b7 ff4048.6bae.b3 fbe86f.6a48.b0 f89bae.68e9.ac f559c6.6791.a8 f2227e.6641.a5 "
        "eef59b.64f8.a2 ebd2e9.63b5.9e e8ba30.6279.9a e5ab3b.6144.97 e2a5d6.6015.94 dfa9d1.5eec.91 dcb6f9.5dc9.8f "
        "d9cd27.5cac.8c d6ec26.5b94.89 d413ca.b501.215 ce7c63.b0d8.201 c905a7.acd7.1ed c3ae56.a8fc.1db "
        "be754b.a546.1cb b9596d.a1b1.1ba b459b2.9e3e.1ab af7515.9ae9.19c aaaaab.97b2.18e a5f988.9496.180 "
        "a160d6.9196.173 9cdfbe.8eaf.167 98757e.8be1.15c 942153.8929.150 8fe288.8688.146 8bb876.83fd.13c "
        "87a26c.8185.132 839fd2.7f21.129 7fb011.7cd0.120 7bd292.7a90.117 7806ca.7861.10f 744c38.7643.107 "
        "70a258.7435.100 6d08b0.7235.f8 697ec8.7044.f1 66042f.6e61.eb 62987a.6c8c.e5 5f3b41.6ac3.de 5bec18.6907.d9 "
        "58aaa7.6756.d2 557688.65b1.cd 524f68.6417.c7 4f34e8.6288.c3 4c26bd.6103.be 492494.5f88.b9 462e1b.5e16.b4 "
        "43430b.5cae.b0 40631a.5b4e.ab 3d8e03.59f7.a7 3ac383.58a9.a3 380355.5762.9f 354d3e.5623.9b 32a0fe.54ec.98 "
        "2ffe5e.53bc.94 2d651f.5293.91 2ad50f.5171.8e 284df8.5055.8a 25cfa0.4f40.88 2359dc.4e31.85 20ec7a.4d28.82 "
        "1e874b.4c24.7e 1c2a1e.4b27.7c 19d4c7.4a2f.7a 178720.493c.77 1540f7.484e.75 13022d.4765.72 10ca94.4681.70 "
        "e9a09.45a2.6e c7068.44c7.6b a4d89.43f1.69 8314b.431f.67 61b8a.4251.65 40c28.4187.63 20308.40c2.61 "),
    "sqrt": Table(15, 32767, 1, -2,
        "0.ffff.1fa 3fc08.fe05.1ee 7f03f.fc16.1e2 bdcd2.fa33.1d8 fc1ed.f85a.1cd 139fba.f68c.1c4 177661.f4c8.1bb "
        "1b460a.f30d.1b2 1f0eda.f15b.1a8 22d0f5.efb3.1a1 268c7f.ee13.198 2a419a.ec7b.18f 2df067.eaeb.187 "
        "319904.e964.181 353b92.e7e3.178 38d82d.e66b.172 3c6ef3.e4f9.16b 400000.e38e.165 438b6e.e22a.15f "
        "471158.e0cc.158 4a91d7.df74.151 4e0d04.de23.14c 5182f7.dcd7.145 54f3c7.db91.13f 585f8b.da51.13b "
        "5bc659.d916.135 5f2846.d7e0.130 628566.d6b0.12b 65ddcf.d584.126 693193.d45e.122 6c80c6.d33c.11d "
        "6fcb7b.d21e.118 7311c2.d106.115 7653b0.cff1.110 799153.cee1.10c 7ccabe.cdd5.109 800000.cccd.105 "
        "83312a.cbc8.ff 865e4a.cac8.fc 898770.c9cc.f9 8cacac.c8d2.f4 8fce0b.c7dd.f2 92eb9b.c6eb.ee 96056a.c5fd.ec "
        "991b86.c511.e7 9c2dfb.c42a.e5 9f3cd7.c345.e2 a24827.c263.de a54ff5.c185.dd a8544f.c0a9.d9 ab5540.bfd0.d6 "
        "ae52d3.befa.d3 b14d15.be26.cf b4440e.bd57.cf b737cc.bc88.ca ba2857.bbbd.c8 bd15ba.baf5.c7 c00000.ba2e.c2 "
        "c2e732.b96b.c2 c5cb5a.b8a9.be c8ac81.b7ea.bc cb8ab0.b72e.bb ce65f2.b673.b8 d13e4e.b5bb.b6 d413cd.16a08.2ca "
        "d9b658.1673c.2b9 df4dd4.16482.2ac e4da83.161d6.29c ea5ca2.15f3a.28f efd46c.15cac.281 f5421a.15a2c.272 "
        "faa5e4.157ba.265 1000000.15554.257 10550a0.152fc.24c 10a97f6.150b0.241 10fd633.14e70.237 1150b85.14c3a.22a "
        "11a3818.14a10.220 11f5c18.147f0.213 12477b0.145dc.20c 1298b08.143d0.200 12e9646.141d0.1f9 1339993.13fd8.1f0 "
        "1389513.13de8.1e4 13d88ea.13c02.1dc 1427539.13a26.1d6 1475a26.13850.1cb 14c37ce.13684.1c5 1510e53.134be.1bb "
        "155ddd3.13302.1b7 15aa66d.1314c.1af 15f683e.12f9e.1a9 1642363.12df6.1a1 168d7f8.12c54.198 16d8617.12aba.191 "
        "1722ddb.12928.18f 176cf5d.1279a.187 17b6ab7.12612.17f 1800000.12492.17b 1848f51.12316.174 18918c0.121a2.172 "
        "18d9c64.12032.16c 1921a54.11ec6.164 19692a3.11d62.161 19b0568.11c02.15c 19f72b8.11aa6.155 1a3daa4.11950.150 "
        "1a83d42.117fe.14a 1ac9aa4.116b2.147 1b0f2dd.1156a.143 1b545fe.11426.13d 1b9941a.112e8.13c 1bddd42.111ac.135 "
        "1c22187.11076.132 1c660f9.10f44.12f 1ca9baa.10e14.129 1ced1a7.10cea.126 1d30302.10bc4.125 1d72fc9.10aa0.11f "
        "1db580b.10980.11a 1df7bd6.10866.11a 1e39b3a.1074c.113 1e7b643.10638.111 1ebcd00.10526.10d 1efdf7e.10418.10a "
        "1f3edc9.1030e.108 1f7f7f0.10206.105 1fbfdfe.10102.103 "),
    "ex2": Table(15, 24457, 4, 4,
        "3.58b9.1ee 5934a.59b0.1f5 b361e.5aaa.1fa 10e8a5.5ba7.1ff 16ab12.5ca6.206 1c7d89.5da9.209 22603c.5eae.20f "
        "285359.5fb6.214 2e570c.60c0.21d 346b81.61ce.222 3a90e8.62df.227 40c775.63f2.22f 470f51.6509.234 "
        "4d68b0.6623.238 53d3c3.673f.241 5a50b9.685f.247 60dfc5.6982.24d 67811a.6aa8.254 6e34e9.6bd2.258 "
        "74fb6a.6cfe.261 7bd4cc.6e2e.267 82c148.6f61.26e 89c10e.7098.273 90d459.71d2.279 97fb5d.730f.281 "
        "9f3651.7450.287 a6856d.7594.28f ade8ea.76dc.295 b560fe.7827.29e bcede5.7976.2a5 c48fda.7ac8.2ae "
        "cc4713.7c1f.2b3 d413cf.7d79.2bb dbf64b.7ed7.2c1 e3eec1.8038.2cb ebfd6d.819e.2d1 f42291.8307.2da "
        "fc5e6a.8474.2e3 104b137.85e5.2ec 10d1b36.875b.2f1 1159cab.88d4.2fb 11e35d6.8a51.305 126e6fa.8bd3.30b "
        "12fb057.8d59.313 1389233.8ee3.31c 1418cd2.9071.326 14aa079.9204.32d 153cd6d.939b.336 15d13f7.9536.341 "
        "166745a.96d6.34a 16feee1.987b.351 17983d6.9a24.35a 1833380.9bd1.366 18cfe2a.9d84.36d 196e41f.9f3b.377 "
        "1a0e5ad.a0f7.380 1ab0320.a2b7.38d 1b53cc4.a47d.395 1bf92ea.a648.39d 1ca05e0.a817.3aa 1d495f8.a9ec.3b2 "
        "1df4382.abc5.3bf 1ea0ecf.ada4.3c9 1f4f834.af88.3d4 "),
    "lg2": Table(13, 1674, 2, -4,
        "7.b8a8.2d7 16e79a.b5d1.2c1 2d75b0.b310.2ad 43acea.b064.299 598fe5.adcc.286 6f2112.ab47.273 8462cc.a8d5.262 "
        "995753.a674.250 ae00db.a424.240 c26165.a1e4.22f d67af8.9fb4.220 ea4f79.9d93.212 fde0bc.9b81.206 "
        "111307f.997c.1f8 124407f.9784.1eb 1371254.9599.1df 149a789.93ba.1d2 15c01ab.91e7.1c7 16e2225.9020.1bd "
        "1800a5c.8e63.1b1 191bbaf.8cb2.1a9 1a33763.8b0a.19e 1b47ec1.896c.194 1c592fe.87d8.18c 1d67542.864c.181 "
        "1e726ad.84ca.179 1f7a85a.8350.170 207fb55.81df.169 21820a2.8076.162 2281945.7f14.15a 237e62a.7dba.153 "
        "247883e.7c67.14b 257006d.7b1c.146 2664f90.79d7.13f 2757685.7898.137 2847617.7761.133 2934f10.762f.12c "
        "2a20236.7503.125 2b0904d.73de.121 2befa03.72be.11b 2cd4014.71a3.114 2db6331.708e.10f 2e96400.6f7e.10a "
        "2f74320.6e74.106 305013d.6d6e.101 3129ef1.6c6d.fd 3201cc9.6b71.f9 32d7b60.6a79.f4 33abb44.6985.ee "
        "347dd03.6896.ea 354e124.67ac.e8 361c826.66c5.e3 36e9296.65e2.df 37b40e7.6503.db 387d39b.6428.d8 "
        "3944b21.6350.d3 3a0a7ef.627d.d1 3acea7d.61ac.cc 3b9133a.60df.c9 3c52288.6016.c7 3d118dd.5f4f.c3 "
        "3dcf693.5e8c.c0 3e8bc15.5dcc.bd 3f469c4.5d0f.ba "),
    "sin": Table(15, 0, 16, -16,
        "0.6489.e 19214e.6482.30 323ec8.646a.4c 4b547c.6444.6e 645e94.640d.89 7d5934.63c8.ab 96407a.6373.c9 "
        "af109c.630e.e5 c7c5ba.629b.106 e05c10.6218.124 f8cfc8.6186.142 1111d24.60e5.160 129405e.6035.17d "
        "14135ca.5f76.19a 158f9a2.5ea9.1b9 170884c.5dcd.1d6 187de2a.5ce2.1f1 19ef796.5be9.20d 1b5d0fe.5ae2.229 "
        "1cc66e8.59cd.245 1e2b5d4.58aa.260 1f8ba48.577a.27d 20e70ec.563c.298 223d66c.54f0.2b0 238e760.5398.2cb "
        "24da0a8.5232.2e2 261fefc.50c0.2fb 275ff44.4f42.316 2899e5e.4db7.32c 29cd952.4c21.347 2afad20.4a7e.35b "
        "2c216e4.48d0.371 2d413ca.4717.388 2e5a104.4553.39e 2f6bbe4.4384.3b2 30761be.41ab.3c7 3179008.3fc8.3dc "
        "327444c.3dda.3ec 3367c04.3be4.401 34534f2.39e4.413 3536cc0.37db.423 361214e.35c9.432 36e5064.33b0.445 "
        "37af812.318e.453 3871658.2f65.463 392a960.2d34.470 39daf5c.2afc.47c 3a82698.28be.48a 3b20d7a.2679.494 "
        "3bb6274.242f.4a1 3c4241c.21df.4ac 3cc511e.1f89.4b3 3d3e82c.1d2f.4bd 3dae822.1ad0.4c4 3e14fda.186e.4ce "
        "3e71e78.1607.4d4 3ec52fc.139d.4da 3f0eca0.1130.4df 3f4eab2.ec0.4e2 3f84c8e.c4f.4ea 3fb11b2.9db.4ec "
        "3fd39ba.765.4ec 3fec43c.4ef.4ef 3ffb10c.278.4f1 "),
    "tanh": Table(17, 0, 1, -4,
        "10000.10000.2 1fffe.1fff8.c 3ffec.3ffd0.68 7ff56.3ff10.a4 bfdc2.3fdc8.dc ffaac.7f860.4f8 17ee0c.7ee80.6f0 "
        "1fd59a.7e0a0.8bc 27ad76.7cf20.a90 2f71fc.7ba00.c58 371fa0.7a150.dec 3eb2f0.f0c40.40a8 4d7e4c.e8a80.4b60 "
        "5bbd40.df370.53f0 695ca0.d4b30.5a70 764d28.192e60.18120 8dfa50.1627c0.18900 a29968.1312e0.17960 "
        "b43388.101e60.15a70 c2f848.d68a0.132f8 cf2eb8.b02e0.108f0 d92988.8f1a0.df40 e13cb4.733d0.b918 "
        "e7b820.5c260.9750 ece3c4.49480.7a90 f0fe38.3a020.6240 f43c7c.2dc40.4e68 f6caa0.24028.3e4a f8ccc1.1c438.312e "
        "fa6005.16248.26aa fb9bcd.11548.1e68 fc92d1.d8b8.17ce fd53d5.a94c.12a8 fdea8f.8424.e96 fe602d.671c.b68 "
        "febbee.5068.8e6 ff037a.3eb0.6f2 ff3b40.30dc.56a ff66b9.2614.43a ff8898.1dac.34a ffa2fd.171c.28e "
        "ffb78d.1200.1fc ffc792.e04.18a ffd430.2930.db0 ffefe0.f30.510 fffa10.590.1d0 fffdd0.210.b0 ffff34.c0.40 "
        "ffffb4.50.20 ffffe4.20.10 fffff4.10.8 "),
}  # fmt: skip
"""rcp: 128 rows for [1, 2). rsqrt, sqrt: 64 for [1, 2), 64 for [2, 4) (there c1 of sqrt has 17 bits, the last one 0).
ex2, lg2: 64 for the fraction. sin: 64 for a quarter turn. tanh: from 2^-8 to 8, TANH_ROWS a power of two."""

TANH_ROWS = (1, 1, 1, 2, 2, 4, 4, 4, 8, 16, 8)
